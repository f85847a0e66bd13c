// Whole jobs with the CUDA kernel's source on an emulator: schedules of several ranks, with the
// shards, tasks and turns of a worker with a GPU.

#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"
#include "tests/worker/executor/conformance_cases.h"
#include "tests/worker/executor/job_runner.h"
#include "tests/worker/executor/same_bits.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 20261124;
constexpr int64_t kTables = 32 << 10;

// `max_tables`: bytes of tables per launch.
KernelFactory Kernel(int64_t max_tables) {
  return [max_tables] { return cuda::MakeEmulatedKernel(max_tables); };
}

struct Compared {
  std::set<Strategy> strategies;
  std::set<Layout> layouts;
  int64_t differing = 0;
};

// Compares a job on plans of `worlds` (more than two ranks on every second plan) with one rank, in
// launches of other sizes.
Compared Compare(const JobCase& job, std::initializer_list<int32_t> worlds) {
  const auto inputs = MakeInputs(job.spec, job.seed);
  const auto bits = [&](const JobCase& planned, int64_t max_tables) {
    JobRunner runner(planned, inputs);
    EXPECT_TRUE(runner.Run(DelayedGroup(planned.plan.world_size), Kernel(max_tables)));
    return BitsOf(planned.spec, runner);
  };
  JobCase alone = job;
  EXPECT_TRUE(SetFoldingPlan(1, Layout::kContiguous, Strategy::kRingPassKv, 0, &alone));
  const Bits expected = bits(alone, 1 << 20);
  Compared compared;
  int64_t n = 0;
  for (const int32_t world : worlds) {
    for (const JobCase& planned : FoldingPlans(job, world)) {
      if (world > 2 && ++n % 2 == 0) continue;
      compared.strategies.insert(planned.execution.strategy);
      compared.layouts.insert(planned.plan.layout);
      const int64_t max_tables = compared.strategies.size() % 2 == 0 ? kTables : 2 * kTables;
      if (Same(bits(planned, max_tables), expected)) continue;
      ++compared.differing;
      if (job.spec.deterministic) ADD_FAILURE() << Describe(planned);
    }
  }
  return compared;
}

TEST(EmulatedCudaTest, DeterministicJobsHaveTheSameBitsOnEveryPlan) {
  std::set<Strategy> strategies;
  for (const auto& [name, job] : SmallFoldingJobs()) {
    SCOPED_TRACE(name);
    const Compared compared = Compare(job, {2, 3});
    EXPECT_EQ(compared.differing, 0);
    EXPECT_GE(compared.strategies.size(), 4u);
    EXPECT_GE(compared.layouts.size(), 4u);
    strategies.insert(compared.strategies.begin(), compared.strategies.end());
  }
  EXPECT_EQ(strategies.size(), 7u);  // All strategies that support deterministic jobs.
}

// Shows that the comparison can fail.
TEST(EmulatedCudaTest, WithoutTheOptionBitsDiffer) {
  std::set<Operation> differing;
  for (auto& [name, job] : SmallFoldingJobs()) {
    if (job.spec.dtype != DataType::kFp32) continue;
    JobCase free = job;
    free.spec.deterministic = false;
    if (Compare(free, {2}).differing > 1) differing.insert(job.spec.operation);
  }
  EXPECT_EQ(differing.size(), 2u);
}

// The small jobs of the covering that virtual ranks run on a GPU (tests/gpu): all strategies,
// forward and backward.
TEST(EmulatedCudaTest, JobsAreWithinTheErrorBudget) {
  constexpr size_t kEvery = 6;
  constexpr int32_t kMostRanks = 4;
  std::map<Operation, std::set<Strategy>> met;
  int64_t jobs = 0;
  const std::vector<Combination> covering = CoverPairs(SmallSizes(), IsMeaningful, kSeed);
  for (size_t i = 0; i < covering.size(); ++i) {
    ConformanceJob made = MakeConformanceJob(covering[i], kSeed + i);
    const bool is_new = met[made.job.spec.operation].insert(made.job.execution.strategy).second;
    if (!is_new && (i % kEvery != 0 || made.job.plan.world_size > kMostRanks)) continue;
    made.job.reads_staging = made.job.ends_rows = false;  // The values of a GPU and this kernel.
    SCOPED_TRACE(Describe(covering[i]));
    JobRunner runner(made.job);
    EXPECT_TRUE(runner.RunAndJudge(DelayedGroup(made.job.plan.world_size), Kernel(kTables)));
    ++jobs;
  }
  std::cout << jobs << " jobs, seed " << kSeed << "\n";
  EXPECT_EQ(met[Operation::kForward].size(), TestStrategies().size());
  EXPECT_EQ(met[Operation::kGradients].size(), TestStrategies().size());
}

// With the Hopper kernel: dimensions that it serves, no modifiers.
TEST(EmulatedCudaTest, JobsByTheKernelForHopperAreWithinTheErrorBudget) {
  constexpr std::pair<Strategy, Layout> kPlans[] = {{Strategy::kRingPassKv, Layout::kZigzag},
                                                    {Strategy::kRingPassQ, Layout::kStriped}};
  uint64_t seed = 0;
  for (const auto& [strategy, layout] : kPlans) {
    JobCase job;
    job.spec = SmallSpec(seed % 2 == 0 ? DataType::kBf16 : DataType::kFp16, 41, 97);
    job.spec.q_heads = 2;
    job.spec.kv_heads = 1;
    job.spec.head_dim = job.spec.head_dim_v = 64;
    job.spec.masks.resize(1);
    job.spec.masks[0].causal = true;
    job.spec.masks[0].window_left = 50;
    job.plan = {static_cast<int32_t>(2 + seed % 2), layout};
    job.seed = ++seed;
    SetStrategy(strategy, 0, &job);
    const auto make = [&] { return cuda::MakeEmulatedHopperKernel(kTables, job.seed); };
    EXPECT_TRUE(JobRunner(job).RunAndJudge(DelayedGroup(job.plan.world_size), make));
  }
}

}  // namespace
}  // namespace annulus
