#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_NONFINITE_VALUES_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_NONFINITE_VALUES_INL_H_

#include "worker/kernel/cuda/sm80/forward_scores-inl.h"

// Values with NaN or infinity under a mask. Included by forward_block-inl.h and
// gradient_rows-inl.h. Start at NonfiniteValues: Hide before the product, Add after it.
namespace annulus::cuda {

// True if some of the elements in 16 bytes is infinite or NaN.
template <class CONFIG>
ANNULUS_GPU bool IsNonfinite(const Chunk& chunk) {
  bool nonfinite = false;
  ANNULUS_UNROLL
  for (int w = 0; w < 4; ++w) {
    if constexpr (CONFIG::kWide) {
      nonfinite |= !IsFinite(BitsAs<float>(chunk.word[w]));
    } else {
      constexpr uint32_t kExponent = CONFIG::kElement == Element::kBf16 ? 0x7f80 : 0x7c00;
      nonfinite |= (chunk.word[w] & kExponent) == kExponent;
      nonfinite |= (chunk.word[w] >> 16 & kExponent) == kExponent;
    }
  }
  return nonfinite;
}

template <class CONFIG, class GPU>
ANNULUS_GPU float ReadElement(GPU& gpu, const std::byte* row, int column) {
  if constexpr (CONFIG::kWide) {
    return gpu.template Load<float>(row + column * 4);
  } else {
    return GPU::template ToFloat<CONFIG::kElement>(gpu.template Load<uint16_t>(row + column * 2));
  }
}

// Infinite values and NaN of keys that some slots of a tile do not see. Such a value times a weight
// of 0 is NaN, so it must not reach the product.
template <class GPU, class CONFIG>
struct NonfiniteValues {
  using Products = TileProducts<GPU, CONFIG>;
  using Scores = typename Products::Scores;
  using Sums = typename Products::Sums;

  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;

  // Sets all values of a key with such a value to 0 in shared memory. Returns false if there are
  // none.
  ANNULUS_GPU bool Hide() const {
    constexpr int kThreadsOfKey = kThreads / CONFIG::kKeys;
    const int key = gpu.Thread() / kThreadsOfKey, part = gpu.Thread() % kThreadsOfKey;
    const uint32_t at = CONFIG::kValuesAt + key * CONFIG::kRowBytes;
    const int chunks = Columns(args.value_dim) * CONFIG::kBytes / 16;
    bool nonfinite = false;
    for (int chunk = part; chunk < chunks; chunk += kThreadsOfKey)
      nonfinite |= IsNonfinite<CONFIG>(gpu.template LoadShared<Chunk>(at + chunk * 16));
    if (!gpu.SyncOr(nonfinite)) return false;
    int any = nonfinite ? 1 : 0;
    for (int lanes = 1; lanes < kThreadsOfKey; lanes *= 2) any |= gpu.ShuffleXor(any, lanes);
    if (part == 0) gpu.template StoreShared<int32_t>(CONFIG::kNonfiniteAt + key * 4, any);
    for (int chunk = part; any != 0 && chunk < chunks; chunk += kThreadsOfKey)
      gpu.template StoreShared<Chunk>(at + chunk * 16, Chunk{{0, 0, 0, 0}});
    gpu.Sync();
    return true;
  }

  // Adds the hidden values to the slots that see them.
  ANNULUS_GPU void Add(int32_t kv_head, int32_t tile, const Scores& weights, uint32_t seen,
                       Sums& sums) const {
    const uint32_t shares_at = CONFIG::kSharesAt + warp * 16 * 8;
    for (int key = 0; key < CONFIG::kKeys; ++key) {
      if (gpu.template LoadShared<int32_t>(CONFIG::kNonfiniteAt + key * 4) == 0) continue;
      ANNULUS_UNROLL
      for (int i = 0; i < CONFIG::kKeyTiles * 4; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 != key) continue;
        const TwoFloats share = {{weights[i / 4][i % 4], seen >> i & 1 ? 1.0f : 0.0f}};
        gpu.template StoreShared<TwoFloats>(shares_at + (lane / 4 + i % 4 / 2 * 8) * 8, share);
      }
      gpu.SyncWarp();
      const auto first = gpu.template LoadShared<TwoFloats>(shares_at + lane / 4 * 8);
      const auto second = gpu.template LoadShared<TwoFloats>(shares_at + (lane / 4 + 8) * 8);
      gpu.SyncWarp();
      const std::byte* values =
          ValueRow<GPU, CONFIG>(args, task, kv_head, tile * CONFIG::kKeys + key);
      AddKey(first, second, values, sums);
    }
  }

 private:
  ANNULUS_GPU void AddKey(const TwoFloats& first, const TwoFloats& second, const std::byte* values,
                          Sums& sums) const {
    ANNULUS_UNROLL
    for (int tile = 0; tile < CONFIG::kColumnTiles; ++tile) {
      ANNULUS_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int column = tile * 8 + lane % 4 * 2 + c;
        if (column >= args.value_dim) continue;
        const float value = ReadElement<CONFIG>(gpu, values, column);
        if (first.value[1] != 0) sums[tile][c] = GPU::Fma(first.value[0], value, sums[tile][c]);
        if (second.value[1] != 0)
          sums[tile][2 + c] = GPU::Fma(second.value[0], value, sums[tile][2 + c]);
      }
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_NONFINITE_VALUES_INL_H_
