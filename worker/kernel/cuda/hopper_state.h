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
    const std::byte* sums[2];
    state.sees = 0;
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const HopperSlot slot = slots.Find(task, half);
      const bool sees = slot.row >= 0;
      state.sees |= (sees ? 1u : 0u) << half;
      state.max[half] =
          sees ? gpu.template Load<float>(Number(slot, task.max_offset)) : -Infinity();
      state.weight[half] = sees ? gpu.template Load<float>(Number(slot, task.weight_offset)) : 0;
      sums[half] = Sums(slot);
    }
    const bool fresh[2] = {state.max[0] == -Infinity(), state.max[1] == -Infinity()};
    float same[2];
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float natural = state.max[half];
      state.max[half] = PowerOf2(natural);
      same[half] = Same(natural, state.max[half]);
      state.weight[half] *= same[half];
    }
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kDim / 4; ++i) {
      const int j = i / 2, half = i % 2;
      TwoFloats two = {{0, 0}};  // What a fresh slot has means nothing.
      if (!fresh[half] && j * 8 < args.value_dim)
        two = gpu.template Load<TwoFloats>(sums[half] + j * 32);
      state.sums[4 * j + 2 * half] = two.value[0] * same[half];
      state.sums[4 * j + 2 * half + 1] = two.value[1] * same[half];
    }
  }

  ANNULUS_GPU void Store(const Slots& slots, const State& state) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      if ((state.sees >> half & 1) == 0) continue;
      const auto place = slots.PlaceOfThread(task, half);
      const float natural = state.max[half] * kLn2;
      const float same = 1.0f / Same(natural, state.max[half]);
      if (gpu.Thread() % 4 == 0) {
        gpu.template Store<float>(Number(place, task.max_offset), natural);
        gpu.template Store<float>(Number(place, task.weight_offset), state.weight[half] * same);
      }
      std::byte* sums = Sums(place);
      ANNULUS_UNROLL
      for (int j = 0; j < CONFIG::kDim / 8; ++j) {
        const TwoFloats two = {
            {state.sums[4 * j + 2 * half] * same, state.sums[4 * j + 2 * half + 1] * same}};
        if (j * 8 < args.value_dim) gpu.template Store<TwoFloats>(sums + j * 32, two);
      }
    }
  }

 private:
  static constexpr float kLn2 = 0.693147180559945309417f;

  // What a finite maximum is as a power of 2 is finite: what a slot has seen must not look as if it
  // had seen nothing.
  ANNULUS_GPU static float PowerOf2(float natural) {
    const float power = natural * kLog2e;
    return power == -Infinity() && natural != -Infinity() ? LowestFloat() : power;
  }
  // e^natural / 2^power, of two that are the same but for rounding: what is relative to the one
  // becomes relative to the other.
  ANNULUS_GPU static float Same(float natural, float power) {
    constexpr float kLog2eRest = 1.92596299e-8f;  // log2(e) − kLog2e.
    const float rest = GPU::Fma(natural, kLog2eRest, GPU::Fma(natural, kLog2e, -power));
    return rest > -0.5f && rest < 0.5f ? Exp2<GPU>(rest) : 1.0f;
  }

  template <class PLACE>
  ANNULUS_GPU std::byte* Number(const PLACE& place, int64_t offset) const {
    return At(task.out, place.row, place.head, offset, 4);
  }
  // The first of the thread's columns: others lie 8 apart, as many as there are eights.
  template <class PLACE>
  ANNULUS_GPU std::byte* Sums(const PLACE& place) const {
    return At(task.out, place.row, place.head, gpu.Thread() % 4 * 8, int64_t{args.value_dim} * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_STATE_H_
