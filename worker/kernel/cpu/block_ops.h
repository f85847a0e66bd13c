#ifndef ANNULUS_WORKER_KERNEL_CPU_BLOCK_OPS_H_
#define ANNULUS_WORKER_KERNEL_CPU_BLOCK_OPS_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "attention/spec/interval.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/compute_pool.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

struct RowsAndHeads {
  Interval rows{0, std::numeric_limits<int64_t>::max()};
  int32_t head_begin = 0, head_end = std::numeric_limits<int32_t>::max();
};

// Runs `op` on host memory, on the rows and heads that lie in both blocks and in `within`, on
// `pool`'s threads. Merge and finish are those of attention/numerics/partial.h; finish uses the
// loop of `isa`. INTERNAL for kinds of blocks that the operation is not made for.
absl::Status ApplyBlockOp(const KernelJob& job, const KernelOp& op, const TileIsa& isa,
                          ComputePool& pool, const RowsAndHeads& within = {});

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_BLOCK_OPS_H_
