#ifndef ANNULUS_WORKER_KERNEL_CUDA_FORWARD_TILES_H_
#define ANNULUS_WORKER_KERNEL_CUDA_FORWARD_TILES_H_

#include "worker/kernel/cuda/forward_slots.h"

namespace annulus::cuda {

// Keys that the slots of a tile see of a task: between begin and end, if any; all of those between
// all_begin and all_end.
struct TileHull {
  int32_t begin, end, all_begin, all_end;
};

// Of what SlotFinder told, after a barrier: the same for every thread.
template <class GPU, class CONFIG>
ANNULUS_GPU TileHull FindHull(GPU& gpu) {
  TileHull hull = {INT_MAX, INT_MIN, INT_MIN, INT_MAX};
  const auto get = [&](int field, int slot) {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(field, slot));
  };
  for (int slot = gpu.Thread() % 32; slot < kTileSlots; slot += 32) {
    hull.begin = Least(hull.begin, get(kSlotBegin, slot));
    hull.end = Most(hull.end, get(kSlotEnd, slot));
    hull.all_begin = Most(hull.all_begin, get(kSlotAllBegin, slot));
    hull.all_end = Least(hull.all_end, get(kSlotAllEnd, slot));
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    hull.begin = Least(hull.begin, gpu.ShuffleXor(hull.begin, lanes));
    hull.end = Most(hull.end, gpu.ShuffleXor(hull.end, lanes));
    hull.all_begin = Most(hull.all_begin, gpu.ShuffleXor(hull.all_begin, lanes));
    hull.all_end = Least(hull.all_end, gpu.ShuffleXor(hull.all_end, lanes));
  }
  return hull;
}

// A tile of keys that some slot sees something of.
struct KeyTile {
  int32_t tile = -1;  // −1: none.
  bool masked = false;
  int parity = 0;  // Which of the two masks and lists of key rows in shared memory is the tile's.
};

// Goes through the tiles of a task's keys, and leaves out those that no slot sees.
template <class GPU, class CONFIG>
struct KeyTiles {
  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;
  TileHull hull;
  SlotSpans spans;  // Of the slot with the thread's number.
  SlotFinder<GPU, CONFIG> finder{gpu, args, task};

  // Which keys of a tile the thread's slot sees.
  ANNULUS_GPU uint64_t MaskOf(int32_t tile) {
    const int32_t first = tile * CONFIG::kKeys, last = first + CONFIG::kKeys;
    uint64_t mask = 0;
    for (;;) {
      while (spans.end <= first && spans.next < spans.last) finder.Advance(&spans);
      if (spans.end <= first || spans.begin >= last) return mask;
      const int32_t begin = Most(spans.begin, first) - first, end = Least(spans.end, last) - first;
      mask |= (~uint64_t{0} >> (64 - (end - begin))) << begin;
      if (spans.end >= last || spans.next == spans.last) return mask;
      finder.Advance(&spans);
    }
  }

  // Nothing before `tile` is seen any more: the next tile in which some slot sees something, by two
  // barriers.
  ANNULUS_GPU int32_t Jump(int32_t tile) {
    const bool sees = spans.end > tile * CONFIG::kKeys && spans.begin < spans.end;
    int32_t next =
        gpu.Thread() < kTileSlots && sees ? Most(spans.begin / CONFIG::kKeys, tile) : INT_MAX;
    for (int lanes = 16; lanes > 0; lanes /= 2) next = Least(next, gpu.ShuffleXor(next, lanes));
    const int warp = gpu.Thread() / 32;
    if (warp < 2 && gpu.Thread() % 32 == 0)
      gpu.template StoreShared<int32_t>(CONFIG::kNextAt + warp * 4, next);
    gpu.Sync();
    const int32_t least = Least(gpu.template LoadShared<int32_t>(CONFIG::kNextAt),
                                gpu.template LoadShared<int32_t>(CONFIG::kNextAt + 4));
    gpu.Sync();
    return least;
  }

  ANNULUS_GPU void PutKeyRows(int32_t tile, int parity) {
    const int key = gpu.Thread();
    if (key >= CONFIG::kKeys) return;
    const int32_t local = tile * CONFIG::kKeys + key;
    int32_t row = 0;
    if (local >= task.k_begin && local < task.k_end)
      row = TableReader<GPU>{gpu, args}.PackedRow(task.k_run, task.k_runs, local);
    gpu.template StoreShared<int32_t>(CONFIG::kKeyRowsAt + (parity * CONFIG::kKeys + key) * 4, row);
  }

  // The first tile from `tile` on. Its mask may be read after a barrier that this may not have.
  ANNULUS_GPU KeyTile Next(int32_t tile, int parity) {
    const bool hides = CONFIG::kChanges && (args.change.bias || args.change.bits);
    while (tile < (hull.end + CONFIG::kKeys - 1) / CONFIG::kKeys) {
      const int32_t first = tile * CONFIG::kKeys;
      const bool whole = first >= hull.all_begin && first + CONFIG::kKeys <= hull.all_end;
      if (CONFIG::kChanges) PutKeyRows(tile, parity);
      if (whole && !hides) return {tile, false, parity};
      uint64_t mask = 0;
      if (gpu.Thread() < kTileSlots) {
        mask = MaskOf(tile);
        gpu.template StoreShared<uint64_t>(
            CONFIG::kMasksAt + (parity * kTileSlots + gpu.Thread()) * 8, mask);
      }
      if (gpu.SyncOr(mask != 0)) return {tile, true, parity};
      tile = Jump(tile + 1);
    }
    return {-1, false, parity};
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_FORWARD_TILES_H_
