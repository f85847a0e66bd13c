#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_PROBE_KERNEL_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_PROBE_KERNEL_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "tests/worker/kernel/reference_kernel.h"

namespace annulus {

// The reference kernel with a hook before each Accumulate; the hook's error becomes the call's.
class ProbeKernel final : public AttentionKernel {
 public:
  explicit ProbeKernel(std::function<absl::Status()> before) : before_(std::move(before)) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    const absl::Status status = before_();
    return status.ok() ? inner_.Accumulate(job, tasks, control) : status;
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    ++applied;
    return inner_.Apply(job, op);
  }
  std::string Description() const override { return "probe"; }

  int64_t applied = 0;  // Calls of Apply.

 private:
  const std::function<absl::Status()> before_;
  ReferenceKernel inner_;
};

// Busy work that takes `time` on any machine and occupies its CPU, as a kernel does.
inline absl::Status BusyFor(absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  while (absl::Now() < end) {
  }
  return absl::OkStatus();
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_PROBE_KERNEL_H_
