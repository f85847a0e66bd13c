#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_ROWS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_ROWS_H_

#include "worker/kernel/cuda/hopper_gradient_config.h"
#include "worker/kernel/cuda/hopper_slots.h"

namespace annulus::cuda {

// The LSE of a slot as scores are while they are weighed, times log2(e), in two numbers: `rest` is
// what rounding took from `lse`.
struct PowerOf2Lse {
  float lse = 0, rest = 0;
};
template <class GPU>
ANNULUS_GPU PowerOf2Lse MakePowerOf2Lse(float natural, float rest) {
  const float power = natural * kLog2e;
  return {power, GPU::Fma(natural, kLog2e, -power) + rest * kLog2e};
}

// A task of an item.
struct HopperWork {
  const ForwardItem& item;
  const ForwardTask& task;
  const GradientTask& more;
};

// The own rows of a consumer group: thread 4·g + c of a warp has its rows g and g + 8.
template <class GPU, class CONFIG>
struct HopperOwnRows {
  using Sums = float[CONFIG::kSums];

  GPU& gpu;
  const ForwardArgs& args;
  const HopperWork& work;
  int group;
  HopperSlots<GPU, CONFIG> slots{gpu, args, work.item};

  struct Place {
    int32_t row, head;
    bool in_task;
  };
  // Of row `own` of the group.
  ANNULUS_GPU Place PlaceOf(int own) const {
    const int number = group * kGroupSlots + own;
    if constexpr (CONFIG::kOfQueries) {
      const auto place = slots.PlaceOf(work.task, number);
      return {place.row, place.head, place.in_task};
    } else {
      const auto key = static_cast<int32_t>(work.item.tile * kOwnRows) + number;
      return {key, work.item.kv_head, key >= work.task.k_begin && key < work.task.k_end};
    }
  }
  ANNULUS_GPU int OwnOf(int half) const {
    const int thread = gpu.Anew(gpu.Thread());
    return thread % kGroupThreads / 32 * 16 + half * 8 + thread % 32 / 4;
  }

  // Copies both inputs to shared memory, where they are when EndLoad returns; columns and rows that
  // are not there become 0. All of the group call it, when nobody of it reads what was there.
  ANNULUS_GPU void BeginLoad() const {
    const BlockAt& block = CONFIG::kOfQueries ? work.task.q : work.task.kv;
    LoadInput(block, false, 0, args.head_dim);
    LoadInput(block, true, CONFIG::kOfQueries ? work.more.d_out_offset : work.task.value_offset,
              args.value_dim);
    gpu.CommitCopies();
  }
  ANNULUS_GPU void EndLoad() const {
    gpu.template WaitCopies<0>();
    gpu.FenceAsync();
    gpu.SyncGroup(1 + group);  // 0 is the block's.
  }

  // Accumulators of the thread's rows in a section of a block, which are there where `there` is.
  ANNULUS_GPU void LoadSums(const BlockAt& block, int64_t offset, int32_t dim, Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Place place = PlaceOf(OwnOf(half));
      const std::byte* const from = SumsOf(block, place, offset, dim);
      ANNULUS_UNROLL
      for (int j = 0; j < CONFIG::kDim / 8; ++j) {
        TwoFloats two = {{0, 0}};
        if (place.in_task && j * 8 < dim) two = gpu.template Load<TwoFloats>(from + j * 32);
        sums[4 * j + 2 * half] = two.value[0];
        sums[4 * j + 2 * half + 1] = two.value[1];
      }
    }
  }
  // `touched`: bits, whether each row has got something; the others keep their bits.
  ANNULUS_GPU void StoreSums(const BlockAt& block, int64_t offset, int32_t dim, uint32_t touched,
                             const Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Place place = PlaceOf(OwnOf(half));
      if (!place.in_task || (touched >> half & 1) == 0) continue;
      std::byte* const to = SumsOf(block, place, offset, dim);
      ANNULUS_UNROLL
      for (int j = 0; j < CONFIG::kDim / 8; ++j) {
        const TwoFloats two = {{sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]}};
        if (j * 8 < dim) gpu.template Store<TwoFloats>(to + j * 32, two);
      }
    }
  }

 private:
  ANNULUS_GPU void LoadInput(const BlockAt& block, bool second, int64_t offset, int32_t dim) const {
    constexpr int kChunks = CONFIG::kPanels * 8;
    const uint32_t to = CONFIG::OwnAt(second, group);
    const int thread = gpu.Anew(gpu.Thread()) % kGroupThreads, chunk = thread % kChunks;
    ANNULUS_NO_UNROLL
    for (int own = thread / kChunks; own < kGroupSlots; own += kGroupThreads / kChunks) {
      const Place place = PlaceOf(own);
      const bool there = place.in_task && chunk * 8 < dim;
      const std::byte* from = block.data;
      if (there) from = At(block, place.row, place.head, offset + chunk * 16, int64_t{dim} * 2);
      gpu.CopyChunkLater(Swizzle128(to + chunk / 8 * CONFIG::kOwnPanelBytes + own * kPanelRowBytes +
                                    chunk % 8 * 16),
                         from, there);
    }
  }
  // The first of the thread's columns: others lie 8 apart.
  ANNULUS_GPU std::byte* SumsOf(const BlockAt& block, const Place& place, int64_t offset,
                                int32_t dim) const {
    return At(block, place.row, place.head, offset + gpu.Thread() % 4 * 8, int64_t{dim} * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_ROWS_H_
