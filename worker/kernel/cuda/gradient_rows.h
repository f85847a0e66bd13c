#ifndef ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_ROWS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_ROWS_H_

#include "worker/kernel/cuda/forward_loads.h"
#include "worker/kernel/cuda/forward_tiles.h"
#include "worker/kernel/cuda/gradient_products.h"

namespace annulus::cuda {

// A task of gradients, as a thread finds it.
struct GradientWork {
  const ForwardTask& task;
  const GradientTask& more;
  int32_t kv_head;
};

// As SlotFinder, with what a slot brings to its weights: one with an LSE of −infinity sees nothing.
template <class GPU, class CONFIG>
ANNULUS_GPU SlotSpans FindGradientSlot(GPU& gpu, const ForwardArgs& args, const GradientWork& work,
                                       int64_t tile) {
  const int slot = gpu.Thread();
  const SlotFinder<GPU, CONFIG> finder{gpu, args, work.task};
  SlotSpans spans = finder.Find(tile, work.kv_head, slot);
  const auto row = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, slot));
  float lse = 0, lse_rest = 0, delta = 0;
  if (row >= 0) {
    const auto head = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, slot));
    lse = gpu.template Load<float>(At(work.task.q, row, head, work.more.lse_offset, 4));
    delta = gpu.template Load<float>(At(work.task.q, row, head, work.more.delta_offset, 4));
    if (work.more.lse_rest_offset >= 0)
      lse_rest = gpu.template Load<float>(At(work.task.q, row, head, work.more.lse_rest_offset, 4));
  }
  if (lse == -Infinity()) {
    lse = lse_rest = delta = 0;
    finder.PutHull(slot, -1, SlotSpans(), 0, true);
    spans = SlotSpans();
  }
  gpu.template StoreShared<float>(CONFIG::kLseAt + slot * 4, lse);
  gpu.template StoreShared<float>(CONFIG::kLseRestAt + slot * 4, lse_rest * kLog2e);
  gpu.template StoreShared<float>(CONFIG::kDeltaAt + slot * 4, delta);
  return spans;
}

// Rows of the four inputs, by slot of the tile at hand or by key, and how they come to shared
// memory. nullptr: zeros.
template <class GPU, class CONFIG>
struct GradientRows {
  GPU& gpu;
  const ForwardArgs& args;
  const GradientWork& work;

  ANNULUS_GPU const std::byte* Query(int slot) const { return OfSlot(slot, 0, args.head_dim); }
  ANNULUS_GPU const std::byte* DOut(int slot) const {
    return OfSlot(slot, work.more.d_out_offset, args.value_dim);
  }
  ANNULUS_GPU const std::byte* Key(int32_t key) const { return OfKey(key, 0, args.head_dim); }
  ANNULUS_GPU const std::byte* Value(int32_t key) const {
    return OfKey(key, work.task.value_offset, args.value_dim);
  }

  // `rows` rows from slot or key `first` on.
  ANNULUS_GPU void LoadFirst(bool of_slots, uint32_t to, int rows, int32_t first) const {
    const RowLoader<GPU, CONFIG> loader{gpu, args, args.head_dim,
                                        of_slots ? work.task.q_whole : work.task.k_whole};
    loader.Load(to, rows, [&](int i) { return of_slots ? Query(first + i) : Key(first + i); });
  }
  ANNULUS_GPU void LoadSecond(bool of_slots, uint32_t to, int rows, int32_t first) const {
    const RowLoader<GPU, CONFIG> loader{gpu, args, args.value_dim,
                                        of_slots ? work.more.d_out_whole : work.task.v_whole};
    loader.Load(to, rows, [&](int i) { return of_slots ? DOut(first + i) : Value(first + i); });
  }

 private:
  ANNULUS_GPU const std::byte* OfSlot(int slot, int64_t offset, int32_t dim) const {
    const auto row = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, slot));
    if (row < 0) return nullptr;
    const auto head = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, slot));
    return At(work.task.q, row, head, offset, int64_t{dim} * CONFIG::kBytes);
  }
  ANNULUS_GPU const std::byte* OfKey(int32_t key, int64_t offset, int32_t dim) const {
    if (key < work.task.k_begin || key >= work.task.k_end) return nullptr;
    return At(work.task.kv, key, work.kv_head, offset, int64_t{dim} * CONFIG::kBytes);
  }
};

// Which of a thread's two own rows see something, of what GradientWeights saw: bits 0 and 1.
ANNULUS_GPU uint32_t OwnThatSee(uint32_t seen) {
  constexpr uint32_t kFirst = 0x33333333u;  // Of each tile's four.
  return ((seen & kFirst) != 0 ? 1 : 0) | ((seen & ~kFirst) != 0 ? 2 : 0);
}

// Sums of a thread's two own rows, from and to accumulators. `row_of` gives the address of row 0
// and of row 1; nullptr: there is none, or it is not to be touched.
template <class GPU, class CONFIG>
struct GradientSums {
  using Sums = typename GradientProducts<GPU, CONFIG>::Sums;

  GPU& gpu;
  int32_t dim;
  int lane = gpu.Thread() % 32;

  ANNULUS_GPU static void Clear(Sums& sums) {
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kColumnTiles * 4; ++i) sums[i / 4][i % 4] = 0;
  }
  template <class ROW_OF>
  ANNULUS_GPU void Load(const ROW_OF& row_of, Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::byte* from = row_of(half);
      if (from == nullptr) continue;
      ANNULUS_UNROLL
      for (int i = 0; i < CONFIG::kColumnTiles * 2; ++i) {
        const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (column < dim)
          sums[i / 2][2 * half + i % 2] = gpu.template Load<float>(from + column * 4);
      }
    }
  }
  template <class ROW_OF>
  ANNULUS_GPU void Store(const ROW_OF& row_of, const Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::byte* to = row_of(half);
      if (to == nullptr) continue;
      ANNULUS_UNROLL
      for (int i = 0; i < CONFIG::kColumnTiles * 2; ++i) {
        const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (column < dim) gpu.template Store<float>(to + column * 4, sums[i / 2][2 * half + i % 2]);
      }
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_ROWS_H_
