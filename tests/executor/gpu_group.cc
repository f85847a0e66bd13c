#include "tests/executor/gpu_group.h"

#include <utility>

#include "attention/status_macros.h"
#include "tests/comm/cuda_mover.h"
#include "worker/comm/in_process.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<GpuGroup>> GpuGroup::Create(std::shared_ptr<CudaContext> context,
                                                           int32_t ranks,
                                                           const MakeKernel& make_kernel,
                                                           const MakeCommunicators& communicators) {
  auto group = std::make_unique<GpuGroup>();
  std::vector<CudaDevice*> devices;
  for (int32_t r = 0; r < ranks; ++r) {
    ASSIGN_OR_RETURN(auto device, CudaDevice::Create(context));
    ASSIGN_OR_RETURN(auto kernel, make_kernel(device.get()));
    devices.push_back(device.get());
    group->devices_.push_back(std::move(device));
    group->kernels_.push_back(std::move(kernel));
  }
  if (ranks == 1) return group;
  ASSIGN_OR_RETURN(group->group_, communicators(devices));
  RETURN_IF_ERROR(FirstError(ConnectAll(group->group_, TestDeadline())));
  return group;
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

testing::AssertionResult GpuGroup::Run(const JobCase& job) {
  JobRunner runner(job);
  if (!runner.status().ok()) return testing::AssertionFailure() << runner.status();
  const auto statuses = RunRanks(runner.ranks(), [&](int32_t r) {
    Executor::Options options;
    options.device = device(r);
    options.kernel = kernel(r);
    options.communicator = runner.ranks() == 1 ? nullptr : communicator(r);
    runner.rank(r).MakeExecutor(std::move(options));
    return runner.rank(r).RunAll(job.segments);
  });
  const absl::Status status = FirstError(statuses);
  if (!status.ok()) return testing::AssertionFailure() << Describe(job) << ": " << status;
  for (int32_t r = 0; r < runner.ranks(); ++r) {
    const testing::AssertionResult used = runner.rank(r).UsedExactlyItsArena();
    if (!used) return testing::AssertionFailure() << Describe(job) << ": " << used.message();
  }
  return runner.Judge();
}

}  // namespace annulus
