#ifndef ANNULUS_WORKER_KERNEL_BLOCK_OPS_H_
#define ANNULUS_WORKER_KERNEL_BLOCK_OPS_H_

#include "absl/status/status.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/compute_pool.h"

namespace annulus {

// Runs `op` on host memory, on the rows and heads that both blocks hold, shared among `pool`'s
// threads. Merge and finish are those of attention/partial.h. INTERNAL for kinds of blocks that the
// operation is not made for.
absl::Status ApplyBlockOp(const KernelJob& job, const KernelOp& op, ComputePool& pool);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_BLOCK_OPS_H_
