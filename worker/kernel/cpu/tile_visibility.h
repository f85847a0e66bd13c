#ifndef ANNULUS_WORKER_KERNEL_CPU_TILE_VISIBILITY_H_
#define ANNULUS_WORKER_KERNEL_CPU_TILE_VISIBILITY_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "worker/kernel/cpu/call_plan.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

// The keys that the tiles of a call see, and how the phases follow from them. Pure functions.

namespace annulus {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Key/value heads.
struct HeadRange {
  int32_t begin = 0, end = 0;
};
inline HeadRange KvHeads(const Task& task, int group) {
  return {task.head_begin / group, static_cast<int32_t>(CeilDiv(task.head_end, group))};
}

// FirstTile, EndTile: the tiles of a task's rows. FirstRow, EndRow: the task's rows that have slots
// in a tile.
inline int64_t FirstTile(const Task& task, int group) { return task.q_begin * group / kTileRows; }
inline int64_t EndTile(const Task& task, int group) {
  return CeilDiv(task.q_end * group, kTileRows);
}
inline int64_t FirstRow(const CallPlan& plan, const Task& task, int64_t tile) {
  return std::max(task.q_begin, tile * kTileRows / plan.group);
}
inline int64_t EndRow(const CallPlan& plan, const Task& task, int64_t tile) {
  return std::min(task.q_end, CeilDiv((tile + 1) * kTileRows, plan.group));
}

// Called between units of a plan. Counts one unit as progress and returns false, or returns true if
// the call is stopped.
inline bool Stopped(const KernelControl& control) {
  if (control.stopped()) return true;
  control.Count(1);
  return false;
}

// The task's keys that a tile's rows see: the hull, and the number of visible (row, key) pairs.
struct TileVisibleKeys {
  Interval hull;
  int64_t pairs = 0;
};

// TileVisibleKeys of each task and class of heads. With it a phase looks only at rows of tiles that
// may see its keys.
class TileVisibility {
 public:
  TileVisibility(const CallPlan& plan, const KernelControl& control);

  // The entries of the task's tiles, in order.
  const std::vector<TileVisibleKeys>& Of(int32_t task, int32_t head_class) const {
    return of_[task][head_class];
  }
  // The key blocks from the first to the last that some head sees from the task's tile `tile`.
  // `tile` counts from the task's first.
  Interval BlocksOf(int32_t task, int64_t tile) const;

 private:
  std::vector<std::vector<std::vector<TileVisibleKeys>>> of_;
};

// The number of packed blocks that a thread keeps, so that it packs each block about once while it
// goes from tile to tile. 0: pack keys ahead. To write a packed key to memory and read it again
// takes as long as hundreds of rows take to attend to it. So packing in passing is for keys that
// few rows see, as with a window or in short sequences.
int64_t BlocksToKeep(const CallPlan& plan, const TileVisibility& hulls, const PhaseLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_TILE_VISIBILITY_H_
