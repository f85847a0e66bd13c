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

// What the forward kernel for sm_90a needs beside the portable one's plans: pure functions.

// Whether that kernel computes the call: 16-bit inputs whose rows and heads lie as TMA wants them
// (dimensions that are multiples of 8), no modifier, not deterministic (its tiles are another fold
// than the portable kernel's).
bool HopperServes(const KernelJob& job, absl::Span<const KernelTask> tasks);

// Blocks of a launch, which take items until none is left: one for each multiprocessor, but for
// those that are kept free for what must not wait until a launch ends. At least half are not.
int64_t HopperBlocks(int64_t items, int multiprocessors, int kept);

// What the slots of a tile see of a task, as tiles of keys (KeyTileRun). AddRows for each slot that
// sees something, or for one of several that see the same.
class KeyTileRuns {
 public:
  explicit KeyTileRuns(int32_t keys_of_tile) : keys_(keys_of_tile) {}

  // Rows of which the first sees sweeps[i].At(skip), all as many spans: sorted, disjoint; those
  // that are empty count for nothing.
  void AddRows(absl::Span<const Sweep> sweeps, int64_t skip, int64_t rows);
  void AppendTo(std::vector<KeyTileRun>* runs);
  // Whether all rows that were added see something.
  bool all_see() const { return all_see_; }

 private:
  // At tile `at` so many more slots see something, and so many more see all.
  struct Change {
    int32_t at, seen, whole;
  };
  // A span of rows: the tiles that it meets in some of them, and those of which it has all in each.
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
  // Of the rows before, which rows often equal.
  absl::InlinedVector<Tiles, 2> tiles_, last_tiles_;
  absl::InlinedVector<Change, 8> changes_;
};

// Key/value heads whose keys and values of these tasks are `cached_bytes` together, one at least;
// or, of gradients, whose queries with their dO are.
int32_t HeadsAtOnce(const KernelJob& job, absl::Span<const KernelTask> tasks, int64_t cached_bytes,
                    bool of_queries = false);

// What both kernels for sm_90a ask of a job: 16 bits, rows and heads of whole sixteen bytes, no
// modifier, not deterministic.
bool IsOfHopper(const KernelJob& job);
// Whether the rows of a block's section begin at multiples of `unit`.
bool Aligned(const BlockAt& block, int64_t offset, int64_t unit);
// Rows of a section of `heads` heads of 16 bits, in boxes of as many rows of one head.
TensorMapSpec MapOfRows(const BlockAt& block, Interval rows, int32_t heads, int64_t offset,
                        int32_t dim, int32_t box_rows);

// The keys and the values of a task.
TensorMapSpec KeyMap(const KernelJob& job, const KernelTask& bound);
TensorMapSpec ValueMap(const KernelJob& job, const KernelTask& bound);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_PLAN_H_
