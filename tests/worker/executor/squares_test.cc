// Long steps whose parts are squares of a task (attention/schedule/passes/segment_steps.h),
// compared with the reference: the shortest jobs that are split at keys.

#include <algorithm>
#include <memory>

#include "gtest/gtest.h"
#include "tests/worker/executor/job_runner.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus {
namespace {

std::unique_ptr<AttentionKernel> MakeCpu() { return *CpuKernel::Create({}); }

// Two ranks, each with more than 128 rows and more than 2 × 4,096 keys.
JobCase LongJob(DataType dtype) {
  JobCase job;
  job.spec = SmallSpec(dtype, 301, 17000);
  job.spec.q_heads = job.spec.kv_heads = 1;
  job.plan.world_size = 2;
  job.plan.layout = Layout::kContiguous;
  job.execution.strategy = Strategy::kRingPassKv;
  job.parts = 3;
  return job;
}

// The number of tasks of all ranks with only the last of a shard's keys.
int64_t CutsAtKeys(JobRunner& runner, int64_t keys_of_shard) {
  int64_t cuts = 0;
  for (int32_t r = 0; r < runner.ranks(); ++r) {
    for (const Step& step : runner.rank(r).program().schedule.steps) {
      cuts += std::count_if(step.tasks.begin(), step.tasks.end(), [&](const Task& task) {
        return task.k_begin > 0 && task.k_end == keys_of_shard;
      });
    }
  }
  return cuts;
}

void ExpectRightInSquares(const JobCase& job) {
  Group group = ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::ZeroDuration(), 1); },
                               job.plan.world_size);
  ASSERT_FALSE(group.empty());
  JobRunner runner(job);
  EXPECT_TRUE(runner.RunAndJudge(group, MakeCpu)) << Describe(job);
  EXPECT_GE(CutsAtKeys(runner, job.spec.sequences[0].kv_len / 2), 2) << Describe(job);
}

TEST(SquaresTest, AForwardJobIsRight) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    for (const Strategy strategy : {Strategy::kRingPassKv, Strategy::kAllGatherKv}) {
      JobCase job = LongJob(dtype);
      job.execution.strategy = strategy;
      ExpectRightInSquares(job);
    }
  }
}

// All rows see all keys of the first rank.
TEST(SquaresTest, ACausalJobIsRight) {
  JobCase job = LongJob(DataType::kFp32);
  job.spec.masks.resize(1);
  job.spec.masks[0].causal = true;
  ExpectRightInSquares(job);
}

// Partials are finished part by part, and only the last of the first rank's keys are sent
// (attention/schedule/passes/split_buffers.h).
TEST(SquaresTest, AJobWithAWindowIsRight) {
  JobCase job = LongJob(DataType::kBf16);
  job.spec.sequences[0] = {26000, 26000, "", 0, 0};
  job.spec.masks.resize(1);
  job.spec.masks[0].causal = true;
  job.spec.masks[0].window_left = 40;
  job.execution.strategy = Strategy::kRotateKv;
  job.parts = 6;
  Group group =
      ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::ZeroDuration(), 1); }, 2);
  ASSERT_FALSE(group.empty());
  JobRunner runner(job);
  EXPECT_TRUE(runner.RunAndJudge(group, MakeCpu)) << Describe(job);
  EXPECT_GE(runner.rank(0).program().schedule.inputs.size(), 3u);
  EXPECT_GE(runner.rank(0).program().schedule.outputs.size(), 3u);
}

// Its pass for queries is split.
TEST(SquaresTest, DeterministicGradientsAreRight) {
  JobCase job = LongJob(DataType::kFp32);
  job.spec.operation = Operation::kGradients;
  job.spec.deterministic = true;
  job.spec.sequences[0] = {512, 17408, "", 0, 0};  // Whole granules of 256 rows.
  job.plan.granule = 256;
  ExpectRightInSquares(job);
}

}  // namespace
}  // namespace annulus
