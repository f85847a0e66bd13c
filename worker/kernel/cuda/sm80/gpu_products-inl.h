#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GPU_PRODUCTS_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GPU_PRODUCTS_INL_H_

#include "worker/kernel/cuda/launch/gpu_code.h"
#include "worker/kernel/cuda/sm80/forward_config.h"

// Matrix products of a warp's 16 slots with a tile of keys and values: FmaProducts for fp32,
// MmaProducts for 16-bit types. Included by forward_scores-inl.h and gradient_rows-inl.h. Start at
// Score and Accumulate of either.
namespace annulus::cuda {

// Products of fp32 inputs by FMA: no tensor core multiplies them exactly.
template <class GPU, class CONFIG>
struct FmaProducts {
  static constexpr int kKeyTiles = CONFIG::kKeyTiles, kColumnTiles = CONFIG::kColumnTiles;
  using Scores = float[kKeyTiles][4];
  using Sums = float[kColumnTiles][4];

  GPU& gpu;
  int32_t head_dim, value_dim;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;
  uint32_t queries_at = CONFIG::kQueriesAt + warp * 16 * CONFIG::kRowBytes;
  uint32_t weights_at = CONFIG::kWeightsAt + warp * 16 * CONFIG::kWeightBytes;

  // scores += queries · keys, unscaled.
  ANNULUS_GPU void Score(Scores& scores) const {
    const uint32_t q_at = queries_at + lane / 4 * CONFIG::kRowBytes;
    const uint32_t k_at = CONFIG::kKeysAt + lane % 4 * 2 * CONFIG::kRowBytes;
    for (int column = 0; column < head_dim; column += 4) {
      const auto q0 = gpu.template LoadShared<FourFloats>(q_at + column * 4);
      const auto q1 =
          gpu.template LoadShared<FourFloats>(q_at + 8 * CONFIG::kRowBytes + column * 4);
      ANNULUS_UNROLL
      for (int tile = 0; tile < kKeyTiles; ++tile) {
        ANNULUS_UNROLL
        for (int c = 0; c < 2; ++c) {
          const auto k = gpu.template LoadShared<FourFloats>(
              k_at + (tile * 8 + c) * CONFIG::kRowBytes + column * 4);
          ANNULUS_UNROLL
          for (int d = 0; d < 4; ++d) {
            scores[tile][c] = GPU::Fma(q0.value[d], k.value[d], scores[tile][c]);
            scores[tile][2 + c] = GPU::Fma(q1.value[d], k.value[d], scores[tile][2 + c]);
          }
        }
      }
    }
  }

  // Same contract as MmaProducts::Accumulate. Weights go through shared memory: each lane needs
  // those of all keys for its two slots.
  template <class ADD>
  ANNULUS_GPU void Accumulate(const Scores& weights, const ADD& add, Sums& sums) const {
    const uint32_t own = weights_at + lane / 4 * CONFIG::kWeightBytes;
    ANNULUS_UNROLL
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      const uint32_t to = own + (tile * 8 + lane % 4 * 2) * 4;
      gpu.template StoreShared<TwoFloats>(to, {{weights[tile][0], weights[tile][1]}});
      gpu.template StoreShared<TwoFloats>(to + 8 * CONFIG::kWeightBytes,
                                          {{weights[tile][2], weights[tile][3]}});
    }
    gpu.SyncWarp();
    ANNULUS_UNROLL
    for (int column = 0; column < kColumnTiles; column += kColumnsAtOnce) {
      if (column * 8 >= value_dim) break;
      AccumulateColumns(own, column, add, sums);
    }
    gpu.SyncWarp();
  }

 private:
  static constexpr int kColumnsAtOnce = 4;

  // A tile's sum is made separately: one long sum over all keys would have a larger error.
  template <class ADD>
  ANNULUS_GPU void AccumulateColumns(uint32_t weights_from, int first, const ADD& add,
                                     Sums& sums) const {
    float more[kColumnsAtOnce][4] = {};
    const uint32_t v_from = CONFIG::kValuesAt + first * 32 + lane % 4 * 8;
    ANNULUS_UNROLL_BY_4
    for (int key = 0; key < CONFIG::kKeys; ++key) {
      const uint32_t w_at = weights_from + key * 4;
      const auto w0 = gpu.template LoadShared<float>(w_at);
      const auto w1 = gpu.template LoadShared<float>(w_at + 8 * CONFIG::kWeightBytes);
      ANNULUS_UNROLL
      for (int column = 0; column < kColumnsAtOnce; ++column) {
        if ((first + column) * 8 >= value_dim) break;
        const auto v =
            gpu.template LoadShared<TwoFloats>(v_from + key * CONFIG::kRowBytes + column * 32);
        ANNULUS_UNROLL
        for (int c = 0; c < 2; ++c) {
          more[column][c] = GPU::Fma(w0, v.value[c], more[column][c]);
          more[column][2 + c] = GPU::Fma(w1, v.value[c], more[column][2 + c]);
        }
      }
    }
    ANNULUS_UNROLL
    for (int column = 0; column < kColumnsAtOnce; ++column) {
      ANNULUS_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& sum = sums[first + column][i];
        sum = add(sum, i / 2, more[column][i]);
      }
    }
  }
};

// Products of 16-bit inputs on tensor cores.
template <class GPU, class CONFIG>
struct MmaProducts {
  static constexpr int kKeyTiles = CONFIG::kKeyTiles, kColumnTiles = CONFIG::kColumnTiles;
  using Scores = float[kKeyTiles][4];
  using Sums = float[kColumnTiles][4];

  GPU& gpu;
  int32_t head_dim, value_dim;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;
  uint32_t queries_at = CONFIG::kQueriesAt + warp * 16 * CONFIG::kRowBytes;

  // scores += queries · keys, unscaled.
  ANNULUS_GPU void Score(Scores& scores) const {
    const uint32_t q_at = queries_at + lane % 16 * CONFIG::kRowBytes + lane / 16 * 16;
    const uint32_t k_at =
        CONFIG::kKeysAt + (lane % 8 + lane / 16 * 8) * CONFIG::kRowBytes + lane / 8 % 2 * 16;
    for (int column = 0; column < head_dim; column += 16) {
      uint32_t q[4];
      gpu.LoadMatrices(q_at + column * 2, q);
      ANNULUS_UNROLL
      for (int tile = 0; tile < kKeyTiles; tile += 2) {
        uint32_t k[2][2];
        LoadPair(k_at + tile * 8 * CONFIG::kRowBytes + column * 2, k);
        gpu.template Mma<CONFIG::kElement>(q, k[0], scores[tile]);
        gpu.template Mma<CONFIG::kElement>(q, k[1], scores[tile + 1]);
      }
    }
  }

  // sum = add(sum, half, more). `more` is the tile's weights · values; `half` is the thread's slot,
  // 0 or 1. The output layout of two tiles of keys is the left operand of the next product: 16
  // slots × 16 keys. A tile's sum is made separately: tensor cores truncate when they add to a sum,
  // and over many keys that would add up.
  template <class ADD>
  ANNULUS_GPU void Accumulate(const Scores& weights, const ADD& add, Sums& sums) const {
    constexpr Element kElement = CONFIG::kElement;
    uint32_t left[kKeyTiles / 2][4];
    ANNULUS_UNROLL
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      ANNULUS_UNROLL
      for (int half = 0; half < 2; ++half)
        left[tile / 2][tile % 2 * 2 + half] =
            GPU::template Pack<kElement>(weights[tile][2 * half], weights[tile][2 * half + 1]);
    }
    const uint32_t v_at = CONFIG::kValuesAt + lane % 16 * CONFIG::kRowBytes + lane / 16 * 16;
    ANNULUS_UNROLL
    for (int column = 0; column < kColumnTiles; column += 2) {
      if (column * 8 >= value_dim) break;
      float more[2][4] = {};
      ANNULUS_UNROLL
      for (int tile = 0; tile < kKeyTiles; tile += 2) {
        uint32_t m[4];
        gpu.LoadMatricesTransposed(v_at + tile * 8 * CONFIG::kRowBytes + column * 16, m);
        const uint32_t v[2][2] = {{m[0], m[1]}, {m[2], m[3]}};
        gpu.template Mma<kElement>(left[tile / 2], v[0], more[0]);
        gpu.template Mma<kElement>(left[tile / 2], v[1], more[1]);
      }
      ANNULUS_UNROLL
      for (int i = 0; i < 8; ++i) {
        float& sum = sums[column + i / 4][i % 4];
        sum = add(sum, i % 4 / 2, more[i / 4][i % 4]);
      }
    }
  }

 private:
  ANNULUS_GPU void LoadPair(uint32_t at, uint32_t (&pair)[2][2]) const {
    uint32_t m[4];
    gpu.LoadMatrices(at, m);
    pair[0][0] = m[0];
    pair[0][1] = m[1];
    pair[1][0] = m[2];
    pair[1][1] = m[3];
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_GPU_PRODUCTS_INL_H_
