#ifndef ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/op_args.h"

namespace annulus::cuda {

// Makes the device arguments of `op`, for the rows and heads that both blocks have; cells == 0:
// none. If NeedsSinks, the caller must set `sinks`. INTERNAL for kinds of blocks that the operation
// is not made for.
absl::StatusOr<OpArgs> MakeOpArgs(const KernelJob& job, const KernelOp& op);

// Makes those of a kMerge from `partials` sources, `partial_bytes` apart; `op.source` is the first.
absl::StatusOr<OpArgs> MakeMergeArgs(const KernelJob& job, const KernelOp& op, int32_t partials,
                                     int64_t partial_bytes);

// A partial with other offsets than BlockLayout's, whose sums are divided by its weights (means).
struct MeansAt {
  std::byte* data = nullptr;
  int64_t row_bytes = 0;
  int64_t max_offset = 0, weight_offset = 0;  // In a row.
};
// Merges means into a partial. The means are for the rows and heads of `block`; each row has seen
// all of some keys.
absl::StatusOr<OpArgs> MakeMeansArgs(const KernelJob& job, Block block, const MeansAt& means,
                                     const BlockView& target);

// True if the operation reads the job's sinks.
bool NeedsSinks(const KernelJob& job, const OpArgs& args);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_PLAN_H_
