#ifndef ANNULUS_WORKER_KERNEL_CPU_TILE_VISIBILITY_H_
#define ANNULUS_WORKER_KERNEL_CPU_TILE_VISIBILITY_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "worker/kernel/cpu/call_plan.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

// What the tiles of a call see, and what follows from that for its phases. Pure functions.

namespace annulus {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Key/value heads.
struct HeadRange {
  int32_t begin = 0, end = 0;
};
inline HeadRange KvHeads(const Task& task, int group) {
  return {task.head_begin / group, static_cast<int32_t>(CeilDiv(task.head_end, group))};
}

// The tiles of a task's rows, and the task's rows that have slots in a tile.
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

// Asked between units of a plan, which it counts.
inline bool Stopped(const KernelControl& control) {
  if (control.stopped()) return true;
  control.Count(1);
  return false;
}

// What the rows of a tile see of a task's keys: from the first key to behind the last, and how many
// (row, key) pairs.
struct TileVisibleKeys {
  Interval hull;
  int64_t pairs = 0;
};

// That of each task and class of heads, so that a phase looks at the rows of those tiles only that
// may see its keys.
class TileVisibility {
 public:
  TileVisibility(const CallPlan& plan, const KernelControl& control);

  // Of the task's tiles, in order.
  const std::vector<TileVisibleKeys>& Of(int32_t task, int32_t head_class) const {
    return of_[task][head_class];
  }
  // Blocks of keys from the first to the last that some head sees from the task's tile `tile`,
  // counted from its first one.
  Interval BlocksOf(int32_t task, int64_t tile) const;

 private:
  std::vector<std::vector<std::vector<TileVisibleKeys>>> of_;
};

// How many packed blocks a thread keeps, so that going from tile to tile it packs about each block
// once; 0: keys are packed ahead. Written to memory and read again, a key takes as long as hundreds
// of rows attend to it: packing in passing is for keys that few rows see, as in a window or in
// short sequences.
int64_t BlocksToKeep(const CallPlan& plan, const TileVisibility& hulls, const PhaseLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_TILE_VISIBILITY_H_
