#ifndef ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_QUERIES_H_
#define ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_QUERIES_H_

#include "worker/kernel/cuda/gradient_parts.h"

namespace annulus::cuda {

// What a task gives to a tile of queries: its keys come by.
template <class GPU, class CONFIG>
struct GradientsOfQueries {
  using Sums = typename GradientProducts<GPU, CONFIG>::Sums;

  GPU& gpu;
  const GradientArgs& args;
  const GradientWork& work;

  ANNULUS_GPU void Run(int32_t tile) const {
    const ForwardTask& task = work.task;
    const int64_t first = int64_t{tile} * kTileSlots;
    if (first + kTileSlots <= int64_t{task.q_begin} * args.forward.group ||
        first >= int64_t{task.q_end} * args.forward.group)
      return;
    SlotSpans spans;
    if (gpu.Thread() < kTileSlots)
      spans = FindGradientSlot<GPU, CONFIG>(gpu, args.forward, work, tile);
    gpu.Sync();
    KeyTiles<GPU, CONFIG> tiles{gpu, args.forward, task, FindHull<GPU, CONFIG>(gpu), spans};
    if (tiles.hull.begin >= tiles.hull.end) return;
    KeyTile at = tiles.Next(tiles.hull.begin / CONFIG::kKeys, 0);
    if (at.tile < 0) return;
    const GradientParts<GPU, CONFIG> parts{gpu, args, work};
    parts.LoadOwn(0);
    const GradientSums<GPU, CONFIG> accumulators{gpu, args.forward.head_dim};
    const auto row_of = [&](int own) { return FirstSums(own); };
    Sums sums;
    accumulators.Clear(sums);
    accumulators.Load(row_of, sums);
    while (at.tile >= 0) {
      ANNULUS_NO_UNROLL
      for (int part = 0; part < CONFIG::kKeys; part += CONFIG::kPart)
        parts.Run({part, at.masked}, at.tile * CONFIG::kKeys + part, sums, sums);
      at = tiles.Next(at.tile + 1, 0);
    }
    accumulators.Store(row_of, sums);
  }

  // Of the thread's own row; nullptr: it has none.
  ANNULUS_GPU std::byte* FirstSums(int own) const {
    const int slot = gpu.Thread() / 32 * 16 + own * 8 + gpu.Thread() % 32 / 4;
    const auto row = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, slot));
    if (row < 0 || work.more.d_q.data == nullptr) return nullptr;
    const auto head = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, slot));
    return At(work.more.d_q, row, head, 0, int64_t{args.forward.head_dim} * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_QUERIES_H_
