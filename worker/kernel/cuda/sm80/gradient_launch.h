#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_LAUNCH_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_LAUNCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/launch_plan.h"

namespace annulus::cuda {

// How an Accumulate call of gradients becomes launches: pure functions, no device. Queries and keys
// have launches of their own, in each of which a block of threads owns its accumulators. Whatever
// the launches, an accumulator row sees its tasks in list order, and a task's tiles of keys, or of
// query slots, by increasing shard-local number; so its bits depend on the list alone, and in a
// deterministic job, whose shards and tasks are of whole global tiles, on the job alone.

// Launches, one after the other, that a task's queries take.
int64_t TurnsOf(const KernelJob& job);

// What a task has beside its ForwardTask; no hulls.
GradientTask GradientTaskOf(const KernelJob& job, const KernelTask& bound);

// Cuts a call as SplitLaunches does, at whole chunks of rows: a tile of slots gives its keys one
// sum.
absl::StatusOr<std::vector<LaunchPieces>> CutGradients(const KernelJob& job,
                                                       absl::Span<const KernelTask> tasks,
                                                       const VisibleRows& visible,
                                                       int64_t max_bytes,
                                                       double max_work = kMaxLaunchWork);

// One launch: `groups` of them from entry `first_group` on.
struct GradientGrid {
  GradientSide side = GradientSide::kQueries;
  int32_t first_group = 0, groups = 0;
  int64_t blocks = 0;
};

// Launches that share tables, in order. `bytes` go to the device, and their address into
// args.forward.tables; ArgsOf gives a launch its groups.
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
