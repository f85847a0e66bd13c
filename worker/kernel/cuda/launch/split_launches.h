#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_SPLIT_LAUNCHES_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_SPLIT_LAUNCHES_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/launch_cost.h"
#include "worker/kernel/cuda/launch/visible_rows.h"

namespace annulus::cuda {

// How an Accumulate call becomes launches of any of our kernels: pure functions, no device.

// Rows [q_begin, q_end) of a task of the call.
struct TaskPiece {
  int32_t task = 0;
  int64_t q_begin = 0, q_end = 0;
};

// What one launch does, in task order.
using LaunchPieces = std::vector<TaskPiece>;

struct LaunchSplitRule {
  int64_t max_bytes = 0;      // Of a launch's tables.
  int64_t more_of_task = 0;   // Bytes of them that a task takes beside those of the forward kernel.
  bool hopper = false;        // For the kernel of sm_90a (hopper_plan.h).
  bool whole_chunks = false;  // Rows are cut at multiples of 64 (kChunkRows) only.
  double max_work = kMaxLaunchWork;  // Of what shares tables, where no piece has more.
};

// Cuts a call into launches whose tables fit and whose work is bounded: an accumulator row sees its
// tasks in list order, within launches and from one to the next. RESOURCE_EXHAUSTED where the least
// piece's do not: what a launch's tables hold is of its rows, so that 4 MiB fit 64 rows of every
// job that is admitted.
absl::StatusOr<std::vector<LaunchPieces>> SplitLaunches(const KernelJob& job,
                                                        absl::Span<const KernelTask> tasks,
                                                        const VisibleRows& visible,
                                                        const LaunchSplitRule& rule);

// Calls fn(sequence) for each sequence that has some of the shard-local query rows `rows`, in
// order.
void ForEachSequence(const MaskMap& mask, const RowMap& q_rows, Interval rows,
                     absl::FunctionRef<void(int64_t)> fn);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_SPLIT_LAUNCHES_H_
