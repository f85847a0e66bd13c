#ifndef ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/op_args.h"

namespace annulus::cuda {

// What the device is told of `op`, on the rows and heads that both blocks have; none where `cells`
// is 0. `sinks` is left for the caller where it needs them. INTERNAL for kinds of blocks that the
// operation is not made for.
absl::StatusOr<OpArgs> MakeOpArgs(const KernelJob& job, const KernelOp& op);

// Of kMerge from `partials` sources, `partial_bytes` apart, of which `op.source` is the first.
absl::StatusOr<OpArgs> MakeMergeArgs(const KernelJob& job, const KernelOp& op, int32_t partials,
                                     int64_t partial_bytes);

// A partial of other offsets than BlockLayout's, whose sums are divided by its weights (means).
struct MeansAt {
  std::byte* data = nullptr;
  int64_t row_bytes = 0;
  int64_t max_offset = 0, weight_offset = 0;  // In a row.
};
// Merges means of the rows and heads of `block`, each of which has seen all of some keys, into a
// partial.
absl::StatusOr<OpArgs> MakeMeansArgs(const KernelJob& job, Block block, const MeansAt& means,
                                     const BlockView& target);

// Whether the operation reads the job's sinks.
bool NeedsSinks(const KernelJob& job, const OpArgs& args);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_PLAN_H_
