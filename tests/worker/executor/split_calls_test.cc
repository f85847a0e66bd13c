#include <memory>
#include <vector>

#include "attention/validate/validate.h"
#include "gtest/gtest.h"
#include "tests/worker/executor/executor_harness.h"
#include "worker/executor/step_binding.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus {
namespace {

KernelTask RowsOfHeads(int64_t q_begin, int64_t q_end, int32_t heads) {
  KernelTask bound;
  bound.task.q_begin = q_begin;
  bound.task.q_end = q_end;
  bound.task.head_end = heads;
  return bound;
}

// 4 query heads, `classes` of which have separate windows.
AttentionSpec Windows(int32_t classes) {
  AttentionSpec spec = SmallSpec(DataType::kFp32, 5000, 5000);
  for (int32_t head = 0; head < classes; ++head) {
    Mask mask;
    mask.causal = true;
    mask.window_left = 5 + head;
    if (classes > 1) mask.query_heads = {head};
    spec.masks.push_back(mask);
  }
  return spec;
}

TEST(CallCuts, WhatFitsIsOneCall) {
  const AttentionSpec spec = Windows(1);
  const MaskMap mask(spec);
  const std::vector<KernelTask> tasks = {RowsOfHeads(0, 5000, 4), RowsOfHeads(100, 200, 4)};
  EXPECT_EQ(SplitCalls(spec, mask, tasks, 2 * 5100).size(), 1u);
  EXPECT_EQ(SplitCalls(spec, mask, tasks, 2 * 5100 - 1).size(), 2u);
  EXPECT_EQ(SplitCalls(spec, mask, {}, 1).size(), 1u);
}

TEST(CallCuts, EachRowIsInOneCallWithItsBeginAndItsEnd) {
  const AttentionSpec spec = Windows(1);
  const MaskMap mask(spec);
  std::vector<KernelTask> tasks = {RowsOfHeads(100, 4000, 4), RowsOfHeads(100, 4000, 4)};
  tasks[0].task.begins = {200, 4000};
  tasks[1].task.ends = {100, 3000};
  std::vector<int> met[2] = {std::vector<int>(5000), std::vector<int>(5000)};
  std::vector<int> begun(5000), ended(5000);
  const auto count = [](Interval rows, std::vector<int>* counts) {
    for (int64_t row = rows.begin; row < rows.end; ++row) ++(*counts)[row];
  };
  constexpr int64_t kMost = 2 * 1600;
  for (const auto& call : SplitCalls(spec, mask, tasks, kMost)) {
    int64_t intervals = 0;
    for (const KernelTask& part : call) {
      const bool second = part.task.ends.length() > 0 || met[0][part.task.q_begin] > 0;
      for (int64_t row = part.task.q_begin; row < part.task.q_end; ++row) {
        EXPECT_EQ(met[1][row], 0);
        EXPECT_EQ(met[0][row], second) << "in order";
      }
      EXPECT_TRUE(part.task.q_end == 4000 || part.task.q_end % 768 == 0);
      intervals += 2 * (part.task.q_end - part.task.q_begin);
      count({part.task.q_begin, part.task.q_end}, &met[second]);
      count(part.task.begins, &begun);
      count(part.task.ends, &ended);
    }
    EXPECT_LE(intervals, kMost);
    EXPECT_GT(intervals, 0);
  }
  for (int64_t row = 0; row < 5000; ++row) {
    const int inside = row >= 100 && row < 4000;
    EXPECT_EQ(met[0][row], inside);
    EXPECT_EQ(met[1][row], inside);
    EXPECT_EQ(begun[row], row >= 200 && row < 4000);
    EXPECT_EQ(ended[row], row >= 100 && row < 3000);
  }
}

TEST(CallCuts, ClassesOfHeadsAndRangesCountAndFullTasksDoNot) {
  const AttentionSpec one = Windows(1), four = Windows(4);
  const std::vector<KernelTask> tasks = {RowsOfHeads(0, 3072, 4)};
  EXPECT_EQ(SplitCalls(one, MaskMap(one), tasks, 2 * 768).size(), 4u);
  EXPECT_EQ(SplitCalls(four, MaskMap(four), tasks, 2 * 4 * 1536).size(), 2u);
  AttentionSpec ranges = one;
  ranges.masks[0].ranges = {{0, 5000, 0, 5000}};
  const int64_t of_row = Limits().max_ranges_of_row;
  EXPECT_EQ(SplitCalls(ranges, MaskMap(ranges), tasks, of_row * 1536).size(), 2u);
  std::vector<KernelTask> full = tasks;
  full[0].task.coverage = Coverage::kFull;
  EXPECT_EQ(SplitCalls(one, MaskMap(one), full, 1).size(), 1u);
  EXPECT_EQ(SplitCalls(one, MaskMap(one), tasks, 1).size(), 4u) << "at least one block of rows";
}

// Counts the calls.
class Counting final : public AttentionKernel {
 public:
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    ++calls;
    return kernel_->Accumulate(job, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return kernel_->Apply(job, op);
  }
  std::string Description() const override { return "counting"; }
  int calls = 0;

 private:
  const std::unique_ptr<AttentionKernel> kernel_ = *CpuKernel::Create({});
};

class CutJobs : public testing::TestWithParam<bool> {
 protected:
  // The outputs of a job on one rank, and the number of its kernel calls.
  static std::vector<std::vector<std::byte>> Run(const JobCase& job, int64_t max_call_intervals,
                                                 int* calls) {
    JobRunner runner(job);
    EXPECT_TRUE(runner.status().ok()) << runner.status();
    Counting kernel;
    Executor::Options options = OptionsOf(&kernel, nullptr);
    options.max_call_intervals = max_call_intervals;
    runner.rank(0).MakeExecutor(options);
    EXPECT_TRUE(runner.rank(0).RunAll(1).ok());
    *calls = kernel.calls;
    std::vector<std::vector<std::byte>> outputs;
    const std::vector<TensorInfo> table = TensorTable(job.spec);
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i].direction == Direction::kInput) continue;
      const std::byte* data = runner.rank(0).staged().data[i];
      outputs.emplace_back(data, data + job.spec.q_rows() * table[i].row_bytes());
    }
    return outputs;
  }
};

TEST_P(CutJobs, HaveTheBitsOfTheWhole) {
  JobCase job;
  job.spec = Windows(1);
  job.spec.deterministic = true;
  if (GetParam()) job.spec.operation = Operation::kGradients;
  job.execution.strategy = Strategy::kRingPassKv;
  job.plan.granule = GranuleOf(job.spec);
  job.reads_staging = true;
  job.ends_rows = !GetParam();
  int whole = 0, cut = 0;
  const auto outputs = Run(job, kMaxCallIntervals, &whole);
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(Run(job, 2 * 768, &cut), outputs);
  EXPECT_EQ(cut, 7);
}

INSTANTIATE_TEST_SUITE_P(Operations, CutJobs, testing::Bool());

}  // namespace
}  // namespace annulus
