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

// The split of an Accumulate call into launches, for all our kernels: pure functions, no device.

// Rows [q_begin, q_end) of a task of the call.
struct TaskPiece {
  int32_t task = 0;
  int64_t q_begin = 0, q_end = 0;
};

// The work of one launch, in task order.
using LaunchPieces = std::vector<TaskPiece>;

struct LaunchSplitRule {
  int64_t max_bytes = 0;             // Limit for a launch's tables.
  int64_t more_of_task = 0;          // Table bytes of a task besides those of the forward kernel.
  bool hopper = false;               // For the kernel for sm_90a (hopper_plan.h).
  bool whole_chunks = false;         // Cut rows only at multiples of kChunkRows.
  double max_work = kMaxLaunchWork;  // Limit of the work of a launch with several pieces.
};

// Cuts a call into launches whose tables fit and whose work is bounded. An accumulator row sees its
// tasks in list order, within launches and across them. RESOURCE_EXHAUSTED if the tables of the
// smallest piece do not fit. Table sizes grow with a launch's rows, and 4 MiB fit 64 rows of every
// admitted job.
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
