// Whole jobs on one GPU by ranks that share it: threads with separate queues, whose messages are
// copies. Every strategy, with the worker's executor and kernel.

#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/validate/capability.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"
#include "tests/gpu/real_gpu.h"
#include "tests/worker/executor/conformance_cases.h"
#include "tests/worker/executor/gpu_group.h"
#include "tests/worker/executor/same_bits.h"
#include "worker/device/cuda_runtime.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 20261124;
// Short, since jobs are small: if one hangs, the others still have time.
constexpr absl::Duration kStepTimeout = absl::Seconds(5);

// Jobs with the names of their values.
std::vector<std::pair<std::string, JobCase>> Jobs() {
  std::vector<std::pair<std::string, JobCase>> jobs;
  const std::vector<Combination> covering = CoverPairs(ConformanceSizes(), IsMeaningful, kSeed);
  for (size_t i = 0; i < covering.size(); ++i)
    jobs.emplace_back(Describe(covering[i]), MakeConformanceJob(covering[i], kSeed + i).job);
  return jobs;
}

// Groups of any number of ranks.
class Groups {
 public:
  explicit Groups(GpuGroup::MakeKernel make_kernel) : make_kernel_(std::move(make_kernel)) {}

  absl::StatusOr<GpuGroup*> Of(int32_t ranks) {
    if (context_ == nullptr) {
      ASSIGN_OR_RETURN(context_, RealGpu(int64_t{512} << 20));
    }
    std::unique_ptr<GpuGroup>& group = groups_[ranks];
    if (group == nullptr) {
      ASSIGN_OR_RETURN(group, GpuGroup::Create(context_, ranks, make_kernel_, GpuGroup::Copying));
    }
    return group.get();
  }

 private:
  const GpuGroup::MakeKernel make_kernel_;
  std::shared_ptr<CudaContext> context_;
  std::map<int32_t, std::unique_ptr<GpuGroup>> groups_;
};

void RunJobs(const GpuGroup::MakeKernel& make_kernel) {
  Groups groups(make_kernel);
  for (const auto& [name, job] : Jobs()) {
    const auto group = groups.Of(job.plan.world_size);
    ASSERT_TRUE(group.ok()) << group.status();
    SCOPED_TRACE(name);
    EXPECT_TRUE((*group)->Run(job, kStepTimeout));
  }
}

// Compares the bits of jobs on two and four ranks with those on one, whose answer is checked.
void CompareBits(const JobCase& job, Groups& groups) {
  const auto inputs = MakeInputs(job.spec, job.seed);
  Bits expected;
  for (const int32_t ranks : {1, 2, 4}) {
    const auto group = groups.Of(ranks);
    ASSERT_TRUE(group.ok()) << group.status();
    for (const JobCase& planned : FoldingPlans(job, ranks)) {
      if (expected.empty()) {
        EXPECT_TRUE((*group)->Run(planned, kStepTimeout));
        ASSERT_TRUE((*group)->RunForBits(planned, inputs, kStepTimeout, &expected));
      }
      Bits bits;
      EXPECT_TRUE((*group)->RunForBits(planned, inputs, kStepTimeout, &bits));
      EXPECT_TRUE(Same(bits, expected)) << Describe(planned);
    }
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

TEST(VirtualRanks, DeterministicJobsHaveTheSameBitsOnAnyNumberOfRanks) {
  if (const std::string lacks = WhyNoGpu(); !lacks.empty()) GTEST_SKIP() << lacks;
  Groups groups(KernelOn);
  for (const auto& [name, job] : SmallFoldingJobs()) {
    SCOPED_TRACE(name);
    CompareBits(job, groups);
  }
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
