#ifndef ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_BIAS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_BIAS_H_

#include "worker/kernel/cuda/gradient_weights.h"

namespace annulus::cuda {

// Adds what GradientWeights left of a part (PutBias) to the gradient of the bias. Where the bias is
// of all heads, slots of one row are summed first, in order: a tile of a key/value head adds once.
template <class GPU, class CONFIG>
struct GradientBias {
  GPU& gpu;
  const GradientArgs& args;
  const GradientWork& work;

  // All threads together, between barriers. `key_tile`: of the part.
  ANNULUS_GPU void Add(const GradientPart& part) const {
    for (int i = gpu.Thread(); i < kTileSlots * CONFIG::kPart; i += kThreads)
      AddOne(i / CONFIG::kPart, part.first, i % CONFIG::kPart);
  }

 private:
  ANNULUS_GPU int32_t Get(int field, int slot) const {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(field, slot));
  }
  ANNULUS_GPU bool Sees(int slot, int key) const {
    if (Get(kSlotRow, slot) < 0) return false;
    const auto mask = gpu.template LoadShared<uint64_t>(CONFIG::kMasksAt + slot * 8);
    return (mask >> key & 1) != 0;
  }

  // The first slot of a row that sees the key adds for all of them.
  ANNULUS_GPU void AddOne(int slot, int first, int column) const {
    const int key = first + column;
    if (!Sees(slot, key)) return;
    const int32_t row = Get(kSlotRow, slot);
    float sum = 0;
    if (args.d_bias_per_head) {
      sum = Read(slot, column);
    } else {
      for (int before = slot - 1; before >= 0 && slot - before < args.forward.group; --before)
        if (Get(kSlotRow, before) == row && Sees(before, key)) return;
      for (int i = slot; i < kTileSlots && i - slot < args.forward.group; ++i)
        if (Get(kSlotRow, i) == row && Sees(i, key)) sum += Read(i, column);
    }
    const int32_t head = args.d_bias_per_head ? Get(kSlotHead, slot) : work.more.d_bias.head_begin;
    const auto key_row = gpu.template LoadShared<int32_t>(CONFIG::kKeyRowsAt + key * 4);
    const int64_t at = key_row - Get(kSlotFirstKey, slot);
    std::byte* to = At(work.more.d_bias, row, head, 0, args.d_bias_bytes) + at * 4;
    gpu.template Store<float>(to, gpu.template Load<float>(to) + sum);
  }
  ANNULUS_GPU float Read(int slot, int column) const {
    return gpu.template LoadShared<float>(CONFIG::kWeightsAt + slot * CONFIG::kWeightBytes +
                                          column * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_BIAS_H_
