// Whole jobs on one GPU by ranks that share it: threads with queues of their own, between which
// messages are copies. Every strategy, by the worker's own executor and kernel.

#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "attention/capability.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule_cases.h"
#include "tests/executor/conformance_cases.h"
#include "tests/executor/gpu_group.h"
#include "tests/gpu/real_gpu.h"
#include "worker/device/cuda_runtime.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 20261124;
// Of small jobs: when one hangs, the others still have their time.
constexpr absl::Duration kStepTimeout = absl::Seconds(5);

// With the names of their values.
std::vector<std::pair<std::string, JobCase>> Jobs() {
  std::vector<std::pair<std::string, JobCase>> jobs;
  const std::vector<Combination> covering = CoverPairs(ConformanceSizes(), IsMeaningful, kSeed);
  for (size_t i = 0; i < covering.size(); ++i)
    jobs.emplace_back(Describe(covering[i]), MakeConformanceJob(covering[i], kSeed + i).job);
  return jobs;
}

void RunJobs(const GpuGroup::MakeKernel& make_kernel) {
  const auto context = RealGpu(int64_t{512} << 20);
  ASSERT_TRUE(context.ok()) << context.status();
  std::map<int32_t, std::unique_ptr<GpuGroup>> groups;
  for (const auto& [name, job] : Jobs()) {
    std::unique_ptr<GpuGroup>& group = groups[job.plan.world_size];
    if (group == nullptr) {
      auto formed = GpuGroup::Create(*context, job.plan.world_size, make_kernel, GpuGroup::Copying);
      ASSERT_TRUE(formed.ok()) << formed.status();
      group = *std::move(formed);
    }
    SCOPED_TRACE(name);
    EXPECT_TRUE(group->Run(job, kStepTimeout));
  }
}

TEST(VirtualRanks, JobsAreWithinTheErrorBudget) {
  if (const std::string lacks = WhyNoGpu(); !lacks.empty()) GTEST_SKIP() << lacks;
  RunJobs(KernelOn);
}

TEST(VirtualRanks, JobsByTheKernelForHopperAreWithinTheErrorBudget) {
  if (const std::string lacks = WhyNoGpu(); !lacks.empty()) GTEST_SKIP() << lacks;
  if (!HasCapability(CudaRuntime(), 0, 9, 0)) GTEST_SKIP() << "another GPU than sm_90";
  RunJobs(HopperKernelOn);
}

// Needs no GPU.
TEST(VirtualRanks, EveryStrategyIsRunForwardAndBackwardAndGpusServeAll) {
  std::set<Strategy> forward, backward;
  for (const auto& [name, job] : Jobs()) {
    const absl::Status served = CheckNotLacking(CudaLacks(), job.spec, job.execution);
    EXPECT_TRUE(served.ok()) << name << ": " << served;
    (job.spec.operation == Operation::kGradients ? backward : forward)
        .insert(job.execution.strategy);
  }
  std::cout << "seed " << kSeed << "\n";
  EXPECT_EQ(forward.size(), TestStrategies().size());
  EXPECT_EQ(backward.size(), TestStrategies().size());
}

}  // namespace
}  // namespace annulus
