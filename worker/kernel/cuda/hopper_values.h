#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_VALUES_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_VALUES_H_

#include "worker/kernel/cuda/hopper_softmax.h"

namespace annulus::cuda {

// A tile of values that some slots do not see whole and that has infinities or NaN, which a weight
// of 0 would not keep out of a product: it is multiplied number by number.
template <class GPU, class CONFIG>
struct HopperUnsoundValues {
  using State = HopperState<GPU, CONFIG>;

  GPU& gpu;
  uint32_t values_at;

  // Of the numbers that the thread looks at: all threads of a group look at all.
  ANNULUS_GPU bool Any() const {
    constexpr uint32_t kExponent = CONFIG::kElement == Element::kBf16 ? 0x7f80 : 0x7c00;
    bool any = false;
    for (uint32_t at = gpu.Anew(gpu.Thread()) % kGroupThreads * 16; at < CONFIG::kTileBytes;
         at += kGroupThreads * 16) {
      const auto chunk = gpu.template LoadShared<Chunk>(values_at + at);
      ANNULUS_UNROLL
      for (int w = 0; w < 4; ++w) {
        any |= (chunk.word[w] & kExponent) == kExponent;
        any |= (chunk.word[w] >> 16 & kExponent) == kExponent;
      }
    }
    return any;
  }

  // Adds weights · values to sums that have been brought to the new maximum.
  ANNULUS_GPU void Add(const uint32_t (&weights)[State::kSteps][4], const uint32_t (&seen)[2],
                       State& state) const {
    // What is derived from it stays out of the registers of other tiles.
    const int thread = gpu.Anew(gpu.Thread()), lane = thread % 32;
    const uint32_t shares_at = CONFIG::kSharesAt + (thread - kGroupThreads) / 32 * 16 * 8;
    for (int key = 0; key < CONFIG::kKeys; ++key) {
      const int pair = key % 8 / 2 == lane % 4 ? key / 8 : -1;
      ANNULUS_UNROLL
      for (int i = 0; i < State::kSteps * 4; ++i) {
        const int half = i % 2;
        if (i / 2 != pair) continue;
        const uint32_t word = weights[i / 4][i % 4];
        const float weight =
            GPU::template ToFloat<CONFIG::kElement>(static_cast<uint16_t>(word >> key % 2 * 16));
        const bool sees = (seen[half] >> (pair * 2 + key % 2) & 1) != 0;
        gpu.template StoreShared<TwoFloats>(shares_at + (lane / 4 + half * 8) * 8,
                                            TwoFloats{{weight, sees ? 1.0f : 0.0f}});
      }
      gpu.SyncWarp();
      const auto first = gpu.template LoadShared<TwoFloats>(shares_at + lane / 4 * 8);
      const auto second = gpu.template LoadShared<TwoFloats>(shares_at + (lane / 4 + 8) * 8);
      gpu.SyncWarp();
      AddKey(key, lane, first, second, state.sums);
    }
  }

 private:
  ANNULUS_GPU void AddKey(int key, int lane, const TwoFloats& first, const TwoFloats& second,
                          float (&sums)[State::kSums]) const {
    const uint32_t row_at = values_at + key * kPanelRowBytes + lane % 4 * 4;
    const uint32_t swizzle = key % 8 * 16;
    ANNULUS_UNROLL
    for (int j = 0; j < CONFIG::kDim / 8; ++j) {
      const auto two = gpu.template LoadShared<uint32_t>(row_at + j / 8 * CONFIG::kKeyPanelBytes +
                                                         (j % 8 * 16 ^ swizzle));
      ANNULUS_UNROLL
      for (int c = 0; c < 2; ++c) {
        const float value =
            GPU::template ToFloat<CONFIG::kElement>(static_cast<uint16_t>(two >> (16 * c)));
        float& low = sums[4 * j + c];
        float& high = sums[4 * j + 2 + c];
        if (first.value[1] != 0) low = GPU::Fma(first.value[0], value, low);
        if (second.value[1] != 0) high = GPU::Fma(second.value[0], value, high);
      }
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_VALUES_H_
