#ifndef ANNULUS_WORKER_KERNEL_CUDA_MMA_PRODUCTS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_MMA_PRODUCTS_H_

#include "worker/kernel/cuda/forward_config.h"
#include "worker/kernel/cuda/gpu_code.h"

namespace annulus::cuda {

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

  // sum = add(sum, half, more): `more` is of weights · values, `half` tells which of the thread's
  // two slots it is for. What a product leaves of two tiles of keys is the left side of the next:
  // 16 slots × 16 keys. A tile's sum is made apart, because tensor cores cut off what they add to a
  // sum: over many keys that would add up.
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

#endif  // ANNULUS_WORKER_KERNEL_CUDA_MMA_PRODUCTS_H_
