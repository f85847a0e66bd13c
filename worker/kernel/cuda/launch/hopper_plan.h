#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/interval.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// Plans of the forward kernel for sm_90a, in addition to those of launch_plan.h: pure functions.

// True if the kernel for sm_90a can compute the call. It needs 16-bit inputs, rows and heads
// aligned for TMA (dimensions that are multiples of 8), no modifier, and a job that is not
// deterministic. Its tiles fold keys in another order than the portable kernel's.
bool HopperServes(const KernelJob& job, absl::Span<const KernelTask> tasks);

// The number of persistent thread blocks of a launch: one per multiprocessor, but at most `items`.
// `kept` multiprocessors stay free for work that must not wait until a launch ends. At least half
// of the multiprocessors get a block.
int64_t HopperBlocks(int64_t items, int multiprocessors, int kept);

// The visibility of a task's keys to the slots of a tile, as runs of tiles of keys (KeyTileRun).
// Call AddRows for each slot that sees a key, or for one of several slots that see the same keys.
class KeyTileRuns {
 public:
  explicit KeyTileRuns(int32_t keys_of_tile) : keys_(keys_of_tile) {}

  // Adds `rows` rows. The first sees sweeps[i].At(skip); all have as many spans, sorted and
  // disjoint; empty spans are ignored.
  void AddRows(absl::Span<const Sweep> sweeps, int64_t skip, int64_t rows);
  void AppendTo(std::vector<KeyTileRun>* runs);
  // True if all added rows see a key.
  bool all_see() const { return all_see_; }

 private:
  // At tile `at`, the changes of the numbers of slots that see some, and all, of the tile.
  struct Change {
    int32_t at, seen, whole;
  };
  // A span of rows: the tiles that it meets in some row, and those that it covers in every row.
  struct Tiles {
    int32_t begin, end, whole_begin, whole_end;
    bool operator==(const Tiles& other) const {
      return begin == other.begin && end == other.end && whole_begin == other.whole_begin &&
             whole_end == other.whole_end;
    }
  };
  const int32_t keys_;
  int32_t rows_ = 0;
  bool all_see_ = true;
  // Entries of the rows added before, which often have the same.
  absl::InlinedVector<Tiles, 2> tiles_, last_tiles_;
  absl::InlinedVector<Change, 8> changes_;
};

// The number of key/value heads, at least one, whose keys and values in these tasks take
// `cached_bytes` together. With of_queries, for gradients: whose queries and dO do.
int32_t HeadsAtOnce(const KernelJob& job, absl::Span<const KernelTask> tasks, int64_t cached_bytes,
                    bool of_queries = false);

// The requirements of both kernels for sm_90a: 16-bit types, rows and heads of a multiple of
// sixteen bytes, no modifier, not deterministic.
bool IsOfHopper(const KernelJob& job);
// True if the rows of a block's section begin at multiples of `unit`.
bool Aligned(const BlockAt& block, int64_t offset, int64_t unit);
// The map of the rows of a section of `heads` 16-bit heads, in boxes of `box_rows` rows of one
// head.
TensorMapSpec MapOfRows(const BlockAt& block, Interval rows, int32_t heads, int64_t offset,
                        int32_t dim, int32_t box_rows);

// The maps of a task's keys and values.
TensorMapSpec KeyMap(const KernelJob& job, const KernelTask& bound);
TensorMapSpec ValueMap(const KernelJob& job, const KernelTask& bound);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_PLAN_H_
