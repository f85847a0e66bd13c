// Whole jobs in which nothing runs at once: kernels, copies and transfers wait in the queues of a
// GPU's stand-in, each for a random time.

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"
#include "tests/sanitized.h"
#include "tests/worker/comm/nccl_stand_in.h"
#include "tests/worker/device/cuda_stand_in.h"
#include "tests/worker/executor/conformance_cases.h"
#include "tests/worker/executor/gpu_group.h"
#include "tests/worker/executor/same_bits.h"
#include "tests/worker/kernel/reference_kernel.h"
#include "worker/comm/nccl.h"
#include "worker/device/cuda_device.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 20261123;
constexpr absl::Duration kStepTimeout = absl::Seconds(20);

// The reference kernel behind a device's queue.
class QueuedKernel final : public AttentionKernel {
 public:
  // `takes`: time of an accumulation.
  QueuedKernel(CudaStandIn* cuda, CudaDevice* device, absl::Duration takes)
      : cuda_(cuda), device_(device), takes_(takes) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl&) override {
    // The stand-in uses host memory; a GPU would fault.
    for (const KernelTask& task : tasks) {
      EXPECT_TRUE(task.q.apart == nullptr && task.kv.apart == nullptr) << "a block in staging";
    }
    return Launch(
        [this, &job, tasks = std::vector<KernelTask>(tasks.begin(), tasks.end())] {
          return inner_.Accumulate(job, tasks, {});
        },
        takes_);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return Launch([this, &job, op] { return inner_.Apply(job, op); }, absl::ZeroDuration());
  }
  std::string Description() const override { return "queued"; }

 private:
  absl::Status Launch(std::function<absl::Status()> work, absl::Duration takes) {
    ASSIGN_OR_RETURN(const CudaStream stream, device_->Compute());
    const auto kernel = [work = std::move(work)] {
      const absl::Status status = work();
      EXPECT_TRUE(status.ok()) << status;
    };
    const CudaError error = cuda_->Launch(stream, kernel, takes);
    return device_->Check(error, "a launch");
  }

  CudaStandIn* const cuda_;
  CudaDevice* const device_;
  const absl::Duration takes_;
  ReferenceKernel inner_;
};

// A stand-in of a GPU, with the message transport on it, and the ranks of one group.
class StandInGroup {
 public:
  // `kernel_time`: of an accumulation; `transfer_time`: of a step's messages over NCCL.
  StandInGroup(bool nccl, int32_t ranks, absl::Duration kernel_time = absl::ZeroDuration(),
               absl::Duration transfer_time = absl::ZeroDuration())
      : cuda_(CudaOptions()) {
    CudaContext::Options options;
    options.arena_bytes = 64 << 20;
    options.workspace_bytes = 0;
    options.bounce_bytes = 8 * 3000;
    NcclStandIn::Options nccl_options;
    nccl_options.cuda = &cuda_;
    nccl_options.launch_time = transfer_time;
    nccl_ = std::make_unique<NcclStandIn>(nccl_options);
    auto group = GpuGroup::Create(
        *CudaContext::Create(&cuda_, options), ranks,
        [this, kernel_time](CudaDevice* device) {
          return std::make_unique<QueuedKernel>(&cuda_, device, kernel_time);
        },
        [this, nccl](const std::vector<CudaDevice*>& devices) {
          return nccl ? OverNccl(devices) : GpuGroup::Copying(devices);
        });
    EXPECT_TRUE(group.ok()) << group.status();
    if (group.ok()) group_ = *std::move(group);
  }

  testing::AssertionResult Run(const JobCase& job) { return group_->Run(job, kStepTimeout); }
  testing::AssertionResult RunForBits(const JobCase& job, std::shared_ptr<const JobInputs> inputs,
                                      Bits* bits) {
    return group_->RunForBits(job, std::move(inputs), kStepTimeout, bits);
  }
  Communicator* communicator(int32_t rank) { return group_->communicator(rank); }
  const GpuGroup& group() const { return *group_; }

 private:
  static CudaStandIn::Options CudaOptions() {
    CudaStandIn::Options options;
    options.max_delay = absl::Microseconds(300);
    options.seed = kSeed;
    return options;
  }
  absl::StatusOr<Group> OverNccl(const std::vector<CudaDevice*>& devices) {
    Group group;
    for (CudaDevice* device : devices) {
      NcclOptions options;
      options.api = nccl_.get();
      options.device = device;
      options.rank = static_cast<int32_t>(group.size());
      options.size = static_cast<int32_t>(devices.size());
      ASSIGN_OR_RETURN(auto communicator, MakeNcclCommunicator(options));
      group.push_back(std::move(communicator));
    }
    return group;
  }

  CudaStandIn cuda_;
  std::unique_ptr<NcclStandIn> nccl_;
  std::unique_ptr<GpuGroup> group_;
};

class QueuedDevice : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Messages, QueuedDevice, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Nccl" : "Copies"; });

TEST_P(QueuedDevice, AJobThatFailsLeavesTheNextAlone) {
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 24, 24);
  job.execution.strategy = Strategy::kRingPassKv;
  job.plan.world_size = 2;
  StandInGroup group(GetParam(), 2);
  group.communicator(1)->Abort();
  EXPECT_FALSE(group.Run(job));
  EXPECT_TRUE(group.Run(job));
}

// The jobs with which virtual ranks on a GPU are compared.
TEST_P(QueuedDevice, AJobsBitsAreThoseOfTheHost) {
  for (const auto& [name, job] : SmallFoldingJobs()) {
    if (job.spec.dtype != DataType::kFp32) continue;
    const JobCase planned = FoldingPlans(job, 2).front();
    const auto inputs = MakeInputs(job.spec, job.seed);
    Bits bits;
    ASSERT_TRUE(StandInGroup(GetParam(), 2).RunForBits(planned, inputs, &bits));
    JobRunner host(planned, inputs);
    ASSERT_TRUE(host.Run(DelayedGroup(2), [] { return std::make_unique<ReferenceKernel>(); }));
    EXPECT_TRUE(Same(bits, BitsOf(job.spec, host))) << name;
  }
}

// The fraction of a ring's time in which rank 0's kernels were done and its messages were not.
double ExposedShare(absl::Duration kernel_time, absl::Duration transfer_time) {
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 24, 24);
  job.execution.strategy = Strategy::kRingPassKv;
  job.plan.world_size = 3;
  StandInGroup group(/*nccl=*/true, 3, kernel_time, transfer_time);
  EXPECT_TRUE(group.Run(job));
  const ExecutionStats& stats = group.group().stats(0);
  EXPECT_GE(stats.running, 3 * kernel_time);
  return absl::FDivDuration(stats.exposed_communication, stats.running);
}

// From its second step on, a Join begins with earlier kernels queued before the messages. Late
// threads change the fraction, so the best of several runs counts.
TEST(QueuedDeviceStats, WhatWaitsForKernelsIsNotExposed) {
  constexpr int kRuns = 10;
  double hidden = 1, exposed = 0;
  for (int run = 0; run < kRuns && hidden > 0.1; ++run)
    hidden = std::min(hidden, ExposedShare(absl::Milliseconds(40), absl::ZeroDuration()));
  EXPECT_LE(hidden, 0.1);
  // Two messages of 40 ms after 5 ms of computing each, then 5 ms of computing.
  for (int run = 0; run < kRuns && exposed < 0.5; ++run)
    exposed = std::max(exposed, ExposedShare(absl::Milliseconds(5), absl::Milliseconds(40)));
  EXPECT_GE(exposed, 0.5);
}

// A part of a covering of the conformance suite's axes: all strategies, forward and backward.
TEST_P(QueuedDevice, JobsAreAsRightAsOnTheHost) {
  constexpr size_t kEvery = kSanitized ? 24 : 8;
  const size_t first = GetParam() ? 0 : kEvery / 2;
  std::map<int32_t, std::unique_ptr<StandInGroup>> groups;
  std::map<Operation, std::set<Strategy>> met;
  int64_t jobs = 0;
  const std::vector<Combination> covering = CoverPairs(SmallSizes(), IsMeaningful, kSeed);
  for (size_t i = 0; i < covering.size(); ++i) {
    const ConformanceJob made = MakeConformanceJob(covering[i], kSeed + i);
    const bool is_new = met[made.job.spec.operation].insert(made.job.execution.strategy).second;
    if (!is_new && i % kEvery != first) continue;
    std::unique_ptr<StandInGroup>& group = groups[made.job.plan.world_size];
    if (group == nullptr) {
      group = std::make_unique<StandInGroup>(GetParam(), made.job.plan.world_size);
    }
    SCOPED_TRACE(Describe(covering[i]));
    EXPECT_TRUE(group->Run(made.job));
    ++jobs;
  }
  std::cout << jobs << " jobs, seed " << kSeed << "\n";
  EXPECT_EQ(met[Operation::kForward].size(), TestStrategies().size());
  EXPECT_EQ(met[Operation::kGradients].size(), TestStrategies().size());
}

}  // namespace
}  // namespace annulus
