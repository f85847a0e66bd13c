#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_EXECUTOR_HARNESS_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_EXECUTOR_HARNESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "tests/worker/executor/job_runner.h"
#include "tests/worker/executor/probe_kernel.h"
#include "worker/device/host.h"

namespace annulus {

inline std::unique_ptr<AttentionKernel> Reference() { return std::make_unique<ReferenceKernel>(); }

inline Group NewGroup(int32_t size) {
  return ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::Microseconds(200), 5); },
                        size);
}

inline JobCase RingJob(int32_t world) {
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 40, 40);
  job.execution.strategy = Strategy::kRingPassKv;
  job.plan.world_size = world;
  return job;
}

// Calls body(r) with rank r's executor, made from options(r).
inline std::vector<absl::Status> RunBodies(
    JobRunner& runner, const std::function<Executor::Options(int32_t)>& options,
    const std::function<absl::Status(int32_t, Executor&)>& body) {
  return RunRanks(runner.ranks(), [&](int32_t r) {
    runner.rank(r).MakeExecutor(options(r));
    Executor& executor = *runner.rank(r).executor();
    RETURN_IF_ERROR(executor.CopyIn(runner.rank(r).staged()));
    return body(r, executor);
  });
}

inline Executor::Options OptionsOf(AttentionKernel* kernel, Communicator* communicator) {
  Executor::Options options;
  options.kernel = kernel;
  options.communicator = communicator;
  return options;
}

// A device whose Synchronize can fail.
class ProbeDevice final : public Device {
 public:
  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) override { return host_->Allocate(bytes); }
  absl::Status CopyIn(const Copy2d& copy) override { return host_->CopyIn(copy); }
  absl::Status CopyOut(const Copy2d& copy) override { return host_->CopyOut(copy); }
  absl::Status Synchronize() override {
    ++waits;
    return status;
  }
  std::string Description() const override { return "probe"; }

  int waits = 0;
  absl::Status status;

 private:
  const std::unique_ptr<Device> host_ = MakeHostDevice();
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_EXECUTOR_HARNESS_H_
