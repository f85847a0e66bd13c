#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/forward_args.h"
#include "worker/kernel/cuda/tensor_map.h"
#include "worker/kernel/visibility.h"

namespace annulus::cuda {

// How an Accumulate call becomes launches of the forward kernel: pure functions, no device.

// Which instantiation serves a job. Dimensions are at most kMaxDim, the type fp32, fp16 or bf16.
ForwardKind KindOf(const KernelJob& job);

// Rows [q_begin, q_end) of a task of the call.
struct TaskPiece {
  int32_t task = 0;
  int64_t q_begin = 0, q_end = 0;
};

// What one launch does, in task order.
using LaunchPieces = std::vector<TaskPiece>;

struct CutRule {
  int64_t max_bytes = 0;      // Of a launch's tables.
  int64_t more_of_task = 0;   // Bytes of them that a task takes beside those of the forward kernel.
  bool hopper = false;        // For the kernel of sm_90a (hopper_plan.h).
  bool whole_chunks = false;  // Rows are cut at multiples of 64 (kChunkRows) only.
  int products = 2;           // Of the largest launch, for each pair of a query and a key.
};

// Cuts a call into launches whose tables fit: an accumulator row sees its tasks in list order,
// within launches and from one to the next. RESOURCE_EXHAUSTED where the least piece's do not.
absl::StatusOr<std::vector<LaunchPieces>> CutCall(const KernelJob& job,
                                                  absl::Span<const KernelTask> tasks,
                                                  const CallVisibility& visible,
                                                  const CutRule& rule);

// A launch: `bytes` go to the device, and their address into args.tables. `maps` are encoded at
// args.at.maps of them before.
struct Launch {
  std::vector<std::byte> bytes;
  std::vector<TensorMapSpec> maps;
  ForwardArgs args = {};
  int64_t blocks = 0;
};
// `cached_bytes`: keys and values that a GPU's L2 cache keeps while many blocks go through them, as
// the kernel of sm_90a goes through the heads.
inline constexpr int64_t kCachedBytes = int64_t{32} << 20;
Launch MakeLaunch(const KernelJob& job, absl::Span<const KernelTask> tasks,
                  const CallVisibility& visible, const LaunchPieces& pieces, bool hopper = false,
                  int64_t cached_bytes = kCachedBytes);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_PLAN_H_
