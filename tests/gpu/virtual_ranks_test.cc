// Whole jobs on one GPU by ranks that share it: threads with queues of their own, between which
// messages are copies. Every strategy, by the worker's own executor and kernel.

#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "attention/capability.h"
#include "gtest/gtest.h"
#include "tests/executor/conformance_cases.h"
#include "tests/executor/gpu_group.h"
#include "tests/gpu/real_gpu.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 20261124;
// Of small jobs: when one hangs, the others still have their time.
constexpr absl::Duration kStepTimeout = absl::Seconds(5);

TEST(VirtualRanks, JobsAreWithinTheErrorBudget) {
  if (const std::string lacks = WhyNoGpu(); !lacks.empty()) GTEST_SKIP() << lacks;
  const auto context = RealGpu(int64_t{512} << 20);
  ASSERT_TRUE(context.ok()) << context.status();
  std::map<int32_t, std::unique_ptr<GpuGroup>> groups;
  std::map<Strategy, int> strategies;
  int64_t gradients = 0, left_out = 0;
  const std::vector<Combination> covering = CoverPairs(ConformanceSizes(), IsMeaningful, kSeed);
  for (size_t i = 0; i < covering.size(); ++i) {
    const ConformanceJob made = MakeConformanceJob(covering[i], kSeed + i);
    if (!CheckNotLacking(CudaLacks(), made.job.spec, made.job.execution).ok()) {
      ++left_out;
      continue;
    }
    std::unique_ptr<GpuGroup>& group = groups[made.job.plan.world_size];
    if (group == nullptr) {
      auto formed =
          GpuGroup::Create(*context, made.job.plan.world_size, KernelOn, GpuGroup::Copying);
      ASSERT_TRUE(formed.ok()) << formed.status();
      group = *std::move(formed);
    }
    SCOPED_TRACE(Describe(covering[i]));
    EXPECT_TRUE(group->Run(made.job, kStepTimeout));
    ++strategies[made.job.execution.strategy];
    gradients += made.job.spec.operation == Operation::kGradients ? 1 : 0;
  }
  std::cout << strategies.size() << " strategies, " << gradients << " of gradients, " << left_out
            << " that GPUs do not serve, seed " << kSeed << "\n";
  EXPECT_GE(strategies.size(), 5u);
}

}  // namespace
}  // namespace annulus
