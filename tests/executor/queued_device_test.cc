// Whole jobs where nothing is done when it is asked for: kernels, copies and transfers wait in the
// queues of a GPU's stand-in, each for a random time.

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "attention/status_macros.h"
#include "gtest/gtest.h"
#include "tests/comm/nccl_stand_in.h"
#include "tests/device/cuda_stand_in.h"
#include "tests/executor/conformance_cases.h"
#include "tests/kernel/reference_kernel.h"
#include "tests/sanitized.h"
#include "worker/comm/nccl.h"
#include "worker/device/cuda_device.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 20261123;

// The reference kernel behind a device's queue.
class QueuedKernel final : public AttentionKernel {
 public:
  QueuedKernel(CudaStandIn* cuda, CudaDevice* device) : cuda_(cuda), device_(device) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl&) override {
    return Launch([this, &job, tasks = std::vector<KernelTask>(tasks.begin(), tasks.end())] {
      return inner_.Accumulate(job, tasks, {});
    });
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return Launch([this, &job, op] { return inner_.Apply(job, op); });
  }
  std::string Description() const override { return "queued"; }

 private:
  absl::Status Launch(std::function<absl::Status()> work) {
    ASSIGN_OR_RETURN(const CudaStream stream, device_->Compute());
    const CudaError error = cuda_->Launch(stream, [work = std::move(work)] {
      const absl::Status status = work();
      EXPECT_TRUE(status.ok()) << status;
    });
    return device_->Check(error, "a launch");
  }

  CudaStandIn* const cuda_;
  CudaDevice* const device_;
  ReferenceKernel inner_;
};

// A GPU, and the ranks of one group on it.
class GpuGroup {
 public:
  explicit GpuGroup(int32_t ranks) : cuda_(CudaOptions()) {
    CudaContext::Options options;
    options.arena_bytes = 64 << 20;
    options.workspace_bytes = 0;
    options.bounce_bytes = 8 * 3000;
    context_ = *CudaContext::Create(&cuda_, options);
    NcclStandIn::Options nccl;
    nccl.cuda = &cuda_;
    nccl_ = std::make_unique<NcclStandIn>(nccl);
    for (int32_t r = 0; r < ranks; ++r) {
      devices_.push_back(*CudaDevice::Create(context_));
      kernels_.push_back(std::make_unique<QueuedKernel>(&cuda_, devices_[r].get()));
    }
    group_ = ConnectedGroup([this](int32_t size) { return Communicators(size); }, ranks);
  }

  testing::AssertionResult Run(const JobCase& job) {
    JobRunner runner(job);
    if (!runner.status().ok()) return testing::AssertionFailure() << runner.status();
    const auto statuses = RunRanks(runner.ranks(), [&](int32_t r) {
      Executor::Options options;
      options.device = devices_[r].get();
      options.kernel = kernels_[r].get();
      options.communicator = runner.ranks() == 1 ? nullptr : group_[r].get();
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

 private:
  static CudaStandIn::Options CudaOptions() {
    CudaStandIn::Options options;
    options.max_delay = absl::Microseconds(300);
    options.seed = kSeed;
    return options;
  }
  Group Communicators(int32_t size) {
    Group group;
    for (int32_t r = 0; r < size; ++r) {
      NcclOptions options;
      options.api = nccl_.get();
      options.device = devices_[r].get();
      options.rank = r;
      options.size = size;
      group.push_back(*MakeNcclCommunicator(options));
    }
    return group;
  }

  CudaStandIn cuda_;
  std::shared_ptr<CudaContext> context_;
  std::unique_ptr<NcclStandIn> nccl_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
  std::vector<std::unique_ptr<QueuedKernel>> kernels_;
  Group group_;
};

// A part of a covering of the conformance suite's axes: all strategies, forward and backward.
TEST(QueuedDevice, JobsAreAsRightAsOnTheHost) {
  constexpr size_t kEvery = kSanitized ? 12 : 4;
  std::map<int32_t, std::unique_ptr<GpuGroup>> groups;
  std::map<Strategy, int> strategies;
  int64_t gradients = 0;
  const std::vector<Combination> covering = CoverPairs(ConformanceSizes(), IsMeaningful, kSeed);
  for (size_t i = 0; i < covering.size(); i += kEvery) {
    const ConformanceJob made = MakeConformanceJob(covering[i], kSeed + i);
    if (made.cpu_kernel) continue;  // These are too large for the reference kernel.
    std::unique_ptr<GpuGroup>& group = groups[made.job.plan.world_size];
    if (group == nullptr) group = std::make_unique<GpuGroup>(made.job.plan.world_size);
    SCOPED_TRACE(Describe(covering[i]));
    EXPECT_TRUE(group->Run(made.job));
    ++strategies[made.job.execution.strategy];
    gradients += made.job.spec.operation == Operation::kGradients ? 1 : 0;
  }
  std::cout << strategies.size() << " strategies, " << gradients << " of gradients, seed " << kSeed
            << "\n";
  if (!kSanitized) {
    EXPECT_GE(strategies.size(), 5u);
    EXPECT_GE(gradients, 3);
  }
}

}  // namespace
}  // namespace annulus
