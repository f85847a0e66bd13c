#ifndef ANNULUS_WORKER_KERNEL_CUDA_FORWARD_STATE_H_
#define ANNULUS_WORKER_KERNEL_CUDA_FORWARD_STATE_H_

#include "worker/kernel/cuda/forward_softmax.h"

namespace annulus::cuda {

// The accumulator rows of a tile.
template <class GPU, class CONFIG>
struct StateRows {
  using Products = TileProducts<GPU, CONFIG>;
  using Sums = typename Products::Sums;

  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;

  // Slots that see nothing in the task have an empty state, which nobody reads.
  ANNULUS_GPU void Load(SlotState& state, Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int32_t row = Row(half), head = Head(half);
      const float max = row < 0
                            ? -Infinity()
                            : gpu.template Load<float>(At(task.out, row, head, task.max_offset, 4));
      const bool fresh = max == -Infinity();  // Its sums mean nothing.
      state.max[half] = max;
      state.weight[half] = 0;
      if (row >= 0)
        state.weight[half] =
            gpu.template Load<float>(At(task.out, row, head, task.weight_offset, 4));
      const std::byte* from = Sum(row, head);
      ANNULUS_UNROLL
      for (int tile = 0; tile < CONFIG::kColumnTiles; ++tile) {
        ANNULUS_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int column = tile * 8 + lane % 4 * 2 + c;
          sums[tile][2 * half + c] = fresh || column >= args.value_dim
                                         ? 0.0f
                                         : gpu.template Load<float>(from + column * 4);
        }
      }
    }
  }

  ANNULUS_GPU void Store(const SlotState& state, const Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int32_t row = Row(half), head = Head(half);
      if (row < 0) continue;
      if (lane % 4 == 0) {
        gpu.template Store<float>(At(task.out, row, head, task.max_offset, 4), state.max[half]);
        gpu.template Store<float>(At(task.out, row, head, task.weight_offset, 4),
                                  state.weight[half]);
      }
      std::byte* to = Sum(row, head);
      ANNULUS_UNROLL
      for (int tile = 0; tile < CONFIG::kColumnTiles; ++tile) {
        ANNULUS_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int column = tile * 8 + lane % 4 * 2 + c;
          if (column < args.value_dim)
            gpu.template Store<float>(to + column * 4, sums[tile][2 * half + c]);
        }
      }
    }
  }

 private:
  ANNULUS_GPU int Slot(int half) const { return warp * 16 + half * 8 + lane / 4; }
  ANNULUS_GPU int32_t Row(int half) const {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, Slot(half)));
  }
  ANNULUS_GPU int32_t Head(int half) const {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, Slot(half)));
  }
  ANNULUS_GPU std::byte* Sum(int32_t row, int32_t head) const {
    return At(task.out, row, head, 0, int64_t{args.value_dim} * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_FORWARD_STATE_H_
