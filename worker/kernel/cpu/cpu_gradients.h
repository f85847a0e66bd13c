#ifndef ANNULUS_WORKER_KERNEL_CPU_CPU_GRADIENTS_H_
#define ANNULUS_WORKER_KERNEL_CPU_CPU_GRADIENTS_H_

#include <vector>

#include "absl/status/status.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/compute_pool.h"
#include "worker/kernel/cpu/gradient_loop.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// Gradients on the CPU. Weights are computed again from the LSE, tile by tile. All five products
// are fp32 for every input type, with one exception: bf16 on "amx" and "avx512bf16". These multiply
// bf16 numbers, and round weights and dS to bf16 first. The bits depend on the inputs and the task
// list, not on the number of threads.
class CpuGradients {
 public:
  // `isa` and `pool` must outlive this.
  CpuGradients(const TileIsa& isa, ComputePool* pool);

  // AttentionKernel::Accumulate for gradient tasks.
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control);

 private:
  const TileIsa& isa_;
  ComputePool* const pool_;
  std::vector<GradientScratch> scratch_;  // One per thread.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_CPU_GRADIENTS_H_
