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

// The keys of pieces of a call that tiles of query slots see: pure functions. A launch plan calls
// them once for all key/value heads with the same visibility.

struct HeadRange {
  int32_t begin, end;
};
// The key/value heads of a task; `group` query heads share one.
HeadRange KvHeads(const Task& task, int group);

// For each key/value head of the task, in order: the first key/value head with the same visibility.
// Two have the same if the query heads of each in the task are as many of each class.
std::vector<int32_t> AlikeHeads(const KernelJob& job, const Task& task);

// Query slots of a tile of either forward kernel.
int64_t SlotsOfTile(bool hopper);

// Tiles of `slots` slots that have some of the rows.
Interval TilesOf(int64_t q_begin, int64_t q_end, int group, int64_t slots);

// The bounding box of key/value heads and tiles that were added; empty at first.
struct TileBox {
  HeadRange heads = {std::numeric_limits<int32_t>::max(), 0};
  Interval tiles = {std::numeric_limits<int64_t>::max(), 0};

  void Add(const HeadRange& more_heads, Interval more_tiles);
};

// The approximate number of visible (row, key) pairs of a tile of a piece.
int64_t CostOf(const CallView& call, const TaskPiece& piece, int32_t kv_head, int64_t tile,
               int64_t slots);
// The sizes of tiles of queries and of keys that meet.
struct TileShape {
  int64_t slots = 0;
  int32_t keys = 0;
};
TileShape HopperTile(const KernelJob& job);  // For the forward kernel for sm_90a.
// Appends the tiles of keys that the kernel for sm_90a visits for the tile (hopper_plan.h). Returns
// true if every slot of the tile that belongs to the piece sees a key.
bool AddRunsOf(const CallView& call, const TaskPiece& piece, int32_t kv_head, int64_t tile,
               const TileShape& shape, std::vector<KeyTileRun>* runs);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TILE_VIEWS_H_
