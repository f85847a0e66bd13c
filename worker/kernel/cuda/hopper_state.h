#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_STATE_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_STATE_H_

#include "worker/kernel/cuda/hopper_softmax.h"

namespace annulus::cuda {

// The accumulator rows of a thread's slots, in a task's block (BlockKind::kPartial).
template <class GPU, class CONFIG>
struct HopperStateRows {
  using State = HopperState<GPU, CONFIG>;
  using Slots = HopperSlots<GPU, CONFIG>;

  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;

  // A slot that sees nothing in the task has an empty state, which nobody reads.
  ANNULUS_GPU void Load(const Slots& slots, State& state) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const HopperSlot slot = slots.Find(task, half);
      const bool sees = slot.row >= 0;
      state.max[half] =
          sees ? gpu.template Load<float>(Number(slot, task.max_offset)) : -Infinity();
      state.weight[half] = sees ? gpu.template Load<float>(Number(slot, task.weight_offset)) : 0;
      const bool fresh = state.max[half] == -Infinity();  // Its sums mean nothing.
      const std::byte* sums = Sums(slot);
      ANNULUS_UNROLL
      for (int j = 0; j < CONFIG::kDim / 8; ++j) {
        TwoFloats two = {{0, 0}};
        if (!fresh && j * 8 < args.value_dim) two = gpu.template Load<TwoFloats>(sums + j * 32);
        state.sums[4 * j + 2 * half] = two.value[0];
        state.sums[4 * j + 2 * half + 1] = two.value[1];
      }
    }
  }

  ANNULUS_GPU void Store(const Slots& slots, const State& state) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const HopperSlot slot = slots.Find(task, half);
      if (slot.row < 0) continue;
      std::byte* sums = Sums(slot);
      if (gpu.Thread() % 4 == 0) {
        gpu.template Store<float>(Number(slot, task.max_offset), state.max[half]);
        gpu.template Store<float>(Number(slot, task.weight_offset), state.weight[half]);
      }
      ANNULUS_UNROLL
      for (int j = 0; j < CONFIG::kDim / 8; ++j) {
        const TwoFloats two = {{state.sums[4 * j + 2 * half], state.sums[4 * j + 2 * half + 1]}};
        if (j * 8 < args.value_dim) gpu.template Store<TwoFloats>(sums + j * 32, two);
      }
    }
  }

 private:
  ANNULUS_GPU std::byte* Number(const HopperSlot& slot, int64_t offset) const {
    return At(task.out, slot.row, slot.head, offset, 4);
  }
  // The first of the thread's columns: others lie 8 apart, as many as there are eights.
  ANNULUS_GPU std::byte* Sums(const HopperSlot& slot) const {
    return At(task.out, slot.row, slot.head, gpu.Thread() % 4 * 8, int64_t{args.value_dim} * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_STATE_H_
