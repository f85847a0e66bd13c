#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_GPU_GROUP_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_GPU_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/worker/comm/group.h"
#include "tests/worker/executor/job_runner.h"
#include "tests/worker/executor/same_bits.h"
#include "worker/device/cuda_device.h"

namespace annulus {

// The ranks of a group on one GPU (or its stand-in), as threads of this process. Each has its own
// queues, kernel and communicator.
class GpuGroup {
 public:
  using MakeKernel = std::function<absl::StatusOr<std::unique_ptr<AttentionKernel>>(CudaDevice*)>;
  // By rank, not connected. They borrow the devices.
  using MakeCommunicators =
      std::function<absl::StatusOr<Group>(const std::vector<CudaDevice*>& devices)>;

  static absl::StatusOr<std::unique_ptr<GpuGroup>> Create(std::shared_ptr<CudaContext> context,
                                                          int32_t ranks,
                                                          const MakeKernel& make_kernel,
                                                          const MakeCommunicators& communicators);

  // Communicators that copy between queues of one GPU instead of using NCCL.
  static absl::StatusOr<Group> Copying(const std::vector<CudaDevice*>& devices);

  // Runs and checks a job of at most `ranks` ranks, with programs for the devices and kernels.
  // After a failed job, whose messages may still be in transit, the next job gets a new group.
  testing::AssertionResult Run(const JobCase& job, absl::Duration step_timeout = absl::Seconds(30));
  // Like Run with these inputs, but returns the bits instead of checking them.
  testing::AssertionResult RunForBits(const JobCase& job, std::shared_ptr<const JobInputs> inputs,
                                      absl::Duration step_timeout, Bits* bits);

  // For the last job of Run.
  const ExecutionStats& stats(int32_t rank) const { return stats_[rank]; }
  CudaDevice* device(int32_t rank) { return devices_[rank].get(); }
  AttentionKernel* kernel(int32_t rank) { return kernels_[rank].get(); }
  // nullptr in a group of one.
  Communicator* communicator(int32_t rank) { return group_.empty() ? nullptr : group_[rank].get(); }

 private:
  absl::Status Form();
  using Look = std::function<testing::AssertionResult(const JobRunner& runner)>;
  // Calls `look` on a job that has run.
  testing::AssertionResult RunAndLook(JobCase job, std::shared_ptr<const JobInputs> inputs,
                                      absl::Duration step_timeout, const Look& look);
  testing::AssertionResult RunOnce(JobRunner& runner, const JobCase& job,
                                   absl::Duration step_timeout);

  std::shared_ptr<CudaContext> context_;
  int32_t ranks_ = 0;
  MakeKernel make_kernel_;
  MakeCommunicators make_communicators_;
  bool formed_ = false;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
  std::vector<std::unique_ptr<AttentionKernel>> kernels_;
  Group group_;
  std::vector<ExecutionStats> stats_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_GPU_GROUP_H_
