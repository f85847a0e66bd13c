#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TILE_VIEWS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TILE_VIEWS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "attention/spec/interval.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/split_launches.h"
#include "worker/kernel/cuda/launch/visible_rows.h"

namespace annulus::cuda {

// What tiles of query slots see of pieces of a call: pure functions. Whoever plans a launch asks
// them once for all key/value heads that see alike.

struct HeadRange {
  int32_t begin, end;
};
// The key/value heads of a task; `group` query heads have one.
HeadRange KvHeads(const Task& task, int group);

// For each key/value head of the task, in order: the first of them whose query heads in the task
// see what its own do, as many of each class.
std::vector<int32_t> AlikeHeads(const KernelJob& job, const Task& task);

// Of a tile of either forward kernel.
int64_t SlotsOfTile(bool hopper);

// Tiles of `slots` slots that have some of the rows.
Interval TilesOf(int64_t q_begin, int64_t q_end, int group, int64_t slots);

// Key/value heads and tiles around what was added; empty at first.
struct TileBox {
  HeadRange heads = {std::numeric_limits<int32_t>::max(), 0};
  Interval tiles = {std::numeric_limits<int64_t>::max(), 0};

  void Add(const HeadRange& more_heads, Interval more_tiles);
};

// Visible (row, key) pairs of a tile of a piece, about.
int64_t CostOf(const CallView& call, const TaskPiece& piece, int32_t kv_head, int64_t tile,
               int64_t slots);
// Of tiles of queries and of keys that meet.
struct TileShape {
  int64_t slots = 0;
  int32_t keys = 0;
};
TileShape HopperTile(const KernelJob& job);  // Of the forward kernel of sm_90a.
// Appends which tiles of keys the kernel of sm_90a visits for it (hopper_plan.h). Whether every
// slot of it that is the piece's sees something.
bool AddRunsOf(const CallView& call, const TaskPiece& piece, int32_t kv_head, int64_t tile,
               const TileShape& shape, std::vector<KeyTileRun>* runs);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TILE_VIEWS_H_
