#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_SUMS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_SUMS_H_

#include "worker/kernel/cuda/hopper_gradient_rows.h"

namespace annulus::cuda {

// What a consumer's thread has of its own rows while tiles of a task come by.
template <class GPU, class CONFIG>
struct HopperGradientSums {
  using Rows = HopperOwnRows<GPU, CONFIG>;

  struct State {
    // dQ; or dK, and dV.
    typename Rows::Sums first, second;
    float lse[2], lse_rest[2], delta[2];  // Of own slots.
    HopperSlot slots[2];                  // What they have yet to see.
    uint32_t touched;                     // Bits: own rows that see something.
  };

  GPU& gpu;
  const GradientArgs& args;
  const Rows& rows;

  ANNULUS_GPU void Begin(State& state) const {
    state.touched = 0;
    if constexpr (CONFIG::kOfQueries) {
      ANNULUS_UNROLL
      for (int half = 0; half < 2; ++half) BeginSlot(half, state);
      rows.LoadSums(rows.work.more.d_q, 0, args.forward.head_dim, state.first);
    } else {
      rows.LoadSums(rows.work.more.d_kv, 0, args.forward.head_dim, state.first);
      rows.LoadSums(rows.work.more.d_kv, rows.work.more.d_value_offset, args.forward.value_dim,
                    state.second);
    }
  }

  ANNULUS_GPU void End(State& state) const {
    if constexpr (CONFIG::kOfQueries) {
      rows.StoreSums(rows.work.more.d_q, 0, args.forward.head_dim, state.touched, state.first);
    } else {
      uint32_t touched = state.touched;
      touched |= gpu.ShuffleXor(touched, 1);
      touched |= gpu.ShuffleXor(touched, 2);
      rows.StoreSums(rows.work.more.d_kv, 0, args.forward.head_dim, touched, state.first);
      rows.StoreSums(rows.work.more.d_kv, rows.work.more.d_value_offset, args.forward.value_dim,
                     touched, state.second);
    }
    gpu.SyncWarp();  // The next task's rows may be these, and other lanes' numbers.
  }

 private:
  ANNULUS_GPU void BeginSlot(int half, State& state) const {
    state.slots[half] = rows.slots.Find(rows.work.task, half);
    state.lse[half] = state.lse_rest[half] = state.delta[half] = 0;
    const auto place = rows.PlaceOf(rows.OwnOf(half));
    if (state.slots[half].row < 0) return;
    const auto number = [&](int64_t offset) {
      return gpu.template Load<float>(At(rows.work.task.q, place.row, place.head, offset, 4));
    };
    const float lse = number(rows.work.more.lse_offset);
    if (lse == -Infinity()) return;
    const int64_t rest_offset = rows.work.more.lse_rest_offset;
    const auto power = MakePowerOf2Lse<GPU>(lse, rest_offset < 0 ? 0.0f : number(rest_offset));
    state.lse[half] = power.lse;
    state.lse_rest[half] = power.rest;
    state.delta[half] = number(rows.work.more.delta_offset);
    state.touched |= 1u << half;
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_SUMS_H_
