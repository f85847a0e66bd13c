#include "tests/worker/executor/gpu_group.h"

#include <utility>

#include "base/status_macros.h"
#include "tests/worker/comm/cuda_mover.h"
#include "tests/worker/comm/in_process.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<GpuGroup>> GpuGroup::Create(std::shared_ptr<CudaContext> context,
                                                           int32_t ranks,
                                                           const MakeKernel& make_kernel,
                                                           const MakeCommunicators& communicators) {
  auto group = std::make_unique<GpuGroup>();
  group->context_ = std::move(context);
  group->ranks_ = ranks;
  group->make_kernel_ = make_kernel;
  group->make_communicators_ = communicators;
  RETURN_IF_ERROR(group->Form());
  return group;
}

absl::Status GpuGroup::Form() {
  group_.clear();
  kernels_.clear();
  devices_.clear();
  std::vector<CudaDevice*> devices;
  for (int32_t r = 0; r < ranks_; ++r) {
    ASSIGN_OR_RETURN(auto device, CudaDevice::Create(context_));
    ASSIGN_OR_RETURN(auto kernel, make_kernel_(device.get()));
    devices.push_back(device.get());
    devices_.push_back(std::move(device));
    kernels_.push_back(std::move(kernel));
  }
  if (ranks_ > 1) {
    ASSIGN_OR_RETURN(group_, make_communicators_(devices));
    RETURN_IF_ERROR(FirstError(ConnectAll(group_, TestDeadline())));
  }
  formed_ = true;
  return absl::OkStatus();
}

absl::StatusOr<Group> GpuGroup::Copying(const std::vector<CudaDevice*>& devices) {
  InProcessHub::Options options;
  options.size = static_cast<int32_t>(devices.size());
  ASSIGN_OR_RETURN(options.mover, MakeCudaMover(devices));
  InProcessHub hub(options);
  Group group;
  for (int32_t r = 0; r < options.size; ++r) group.push_back(hub.MakeCommunicator(r));
  return group;
}

testing::AssertionResult GpuGroup::Run(const JobCase& job, absl::Duration step_timeout) {
  return RunAndLook(job, MakeInputs(job.spec, job.seed), step_timeout,
                    [](const JobRunner& runner) { return runner.Judge(); });
}

testing::AssertionResult GpuGroup::RunForBits(const JobCase& job,
                                              std::shared_ptr<const JobInputs> inputs,
                                              absl::Duration step_timeout, Bits* bits) {
  return RunAndLook(job, std::move(inputs), step_timeout, [&](const JobRunner& runner) {
    *bits = BitsOf(job.spec, runner);
    return testing::AssertionSuccess();
  });
}

testing::AssertionResult GpuGroup::RunAndLook(JobCase job, std::shared_ptr<const JobInputs> inputs,
                                              absl::Duration step_timeout, const Look& look) {
  if (!formed_) {
    const absl::Status status = Form();
    if (!status.ok()) return testing::AssertionFailure() << "no new group: " << status;
  }
  // A device that cannot read staging must have no block there.
  job.reads_staging = devices_[0]->reads_staging();
  job.ends_rows = kernels_[0]->ends_rows();
  JobRunner runner(job, std::move(inputs));
  testing::AssertionResult result = RunOnce(runner, job, step_timeout);
  if (result) result = look(runner);
  formed_ = static_cast<bool>(result);
  return result;
}

testing::AssertionResult GpuGroup::RunOnce(JobRunner& runner, const JobCase& job,
                                           absl::Duration step_timeout) {
  if (!runner.status().ok()) return testing::AssertionFailure() << runner.status();
  const auto statuses = RunRanks(runner.ranks(), [&](int32_t r) {
    Executor::Options options;
    options.step_timeout = step_timeout;
    options.device = device(r);
    options.kernel = kernel(r);
    options.communicator = runner.ranks() == 1 ? nullptr : communicator(r);
    runner.rank(r).MakeExecutor(std::move(options));
    return runner.rank(r).RunAll(job.segments);
  });
  const absl::Status status = FirstError(statuses);
  if (!status.ok()) return testing::AssertionFailure() << Describe(job) << ": " << status;
  stats_.clear();
  for (int32_t r = 0; r < runner.ranks(); ++r) stats_.push_back(runner.rank(r).executor()->stats());
  for (int32_t r = 0; r < runner.ranks(); ++r) {
    const testing::AssertionResult used = runner.rank(r).UsedExactlyItsArena();
    if (!used) return testing::AssertionFailure() << Describe(job) << ": " << used.message();
  }
  return testing::AssertionSuccess();
}

}  // namespace annulus
