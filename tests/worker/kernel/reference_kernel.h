#ifndef ANNULUS_TESTS_WORKER_KERNEL_REFERENCE_KERNEL_H_
#define ANNULUS_TESTS_WORKER_KERNEL_REFERENCE_KERNEL_H_

#include <string>

#include "worker/kernel/attention_kernel.h"

namespace annulus {

// The stand-in for AttentionKernel: one thread, loops in fp64, no tiles. Stores partials as the
// contract requires (fp32), so it may alternate with another kernel on the same buffers. Serves the
// jobs that CpuKernel serves.
class ReferenceKernel : public AttentionKernel {
 public:
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override;
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override;
  std::string Description() const override { return "reference/fp64"; }
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_REFERENCE_KERNEL_H_
