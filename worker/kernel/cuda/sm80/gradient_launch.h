#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_LAUNCH_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_LAUNCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/launch_plan.h"

namespace annulus::cuda {

// The split of a gradient Accumulate call into launches: pure functions, no device. Queries and
// keys have separate launches. In each, a thread block owns its accumulators.
//
// An accumulator row sees its tasks in list order. It sees a task's tiles of keys, or of query
// slots, by increasing shard-local number. So its bits depend on the list alone, not on the
// launches. In a deterministic job, whose shards and tasks consist of whole global tiles, they
// depend on the job alone.

// The number of launches, one after the other, that a task's queries take.
int64_t TurnsOf(const KernelJob& job);

// The GradientTask of a task; its hull_at is not set.
GradientTask GradientTaskOf(const KernelJob& job, const KernelTask& bound);

// Cuts a call as SplitLaunches does, but at whole chunks of rows: a tile of slots adds one sum to
// its keys.
absl::StatusOr<std::vector<LaunchPieces>> CutGradients(const KernelJob& job,
                                                       absl::Span<const KernelTask> tasks,
                                                       const VisibleRows& visible,
                                                       int64_t max_bytes,
                                                       double max_work = kMaxLaunchWork);

// One launch: `groups` entries of the table of groups, from `first_group` on.
struct GradientGrid {
  GradientSide side = GradientSide::kQueries;
  int32_t first_group = 0, groups = 0;
  int64_t blocks = 0;
};

// Launches that share tables, in order. Upload `bytes` and store their device address in
// args.forward.tables. ArgsOf returns the arguments of one launch.
struct GradientLaunch {
  std::vector<std::byte> bytes;
  GradientArgs args = {};
  std::vector<GradientGrid> grids;

  GradientArgs ArgsOf(const GradientGrid& grid) const;
};
GradientLaunch MakeGradientLaunch(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                  const VisibleRows& visible, const LaunchPieces& pieces,
                                  PlanMemory* memory);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_LAUNCH_H_
