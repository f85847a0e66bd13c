// The limit of launches: the work that any type of GPU does in a fraction of a second.
#include "worker/kernel/cuda/launch/launch_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "tests/worker/kernel/gradient_harness.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "worker/kernel/compute_pool.h"

namespace annulus::cuda {
namespace {

// A job of one sequence and its one task.
class Case {
 public:
  explicit Case(const AttentionSpec& spec) : spec_(spec) {
    const reference::Input input = reference::InputOf(spec_);
    if (spec.operation == Operation::kForward) {
      forward_.emplace(spec_, input, Cuts());
      job_ = forward_->job();
      tasks_ = forward_->Tasks();
    } else {
      reference::Upstream up;
      up.out = up.d_out = input.q;
      up.lse.assign(spec.q_rows() * spec.q_heads, 0.0);
      gradients_.emplace(spec_, input, up, Cuts());
      job_ = gradients_->job();
      tasks_ = gradients_->Tasks();
    }
    visible_ = std::make_unique<VisibleRows>(*job_.mask, tasks_, *pool_);
  }

  KernelTask& task() { return tasks_[0]; }
  double Cost() const { return PairCost(job_).Of(tasks_[0]); }
  CallView call() const { return {job_, tasks_, *visible_}; }

 private:
  const AttentionSpec spec_;
  const std::unique_ptr<ComputePool> pool_ = *ComputePool::Create(1);
  std::optional<KernelHarness> forward_;
  std::optional<GradientHarness> gradients_;
  KernelJob job_;
  std::vector<KernelTask> tasks_;
  std::unique_ptr<VisibleRows> visible_;
};

AttentionSpec SpecOf(DataType dtype, int32_t dim, bool gradients = false) {
  AttentionSpec spec = Spec(dtype, 2, 1, dim);
  spec.sequences = {Rows(100, 300)};
  if (gradients) spec.operation = Operation::kGradients;
  return spec;
}

// FMA has about a tenth of the tensor cores' rate.
TEST(PairCostTest, Fp32CostsAsMuchMoreAsItsRateIsLower) {
  for (const bool gradients : {false, true}) {
    for (const int32_t dim : {64, 128, 256}) {
      const double fp32 = Case(SpecOf(DataType::kFp32, dim, gradients)).Cost();
      const double bf16 = Case(SpecOf(DataType::kBf16, dim, gradients)).Cost();
      EXPECT_GE(fp32, 8 * bf16) << dim;
      EXPECT_LE(fp32, 16 * bf16) << dim;
      EXPECT_EQ(bf16, Case(SpecOf(DataType::kFp16, dim, gradients)).Cost());
    }
  }
}

// Softmax work does not depend on the dimensions.
TEST(PairCostTest, TinyDimensionsCostAtLeastHalfOfSixtyFour) {
  EXPECT_GE(2 * Case(SpecOf(DataType::kBf16, 1)).Cost(), Case(SpecOf(DataType::kBf16, 64)).Cost());
  EXPECT_LT(Case(SpecOf(DataType::kBf16, 8)).Cost(), Case(SpecOf(DataType::kBf16, 64)).Cost());
}

// Seven products, or eight if dK and dV have separate launches, instead of the forward pass' two.
TEST(PairCostTest, GradientsCostTheProductsOfAllTheirLaunches) {
  for (const int32_t dim : {64, 128, 256}) {
    for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
      const int products = dim > 128 ? 8 : 7, passes = dim > 128 ? 3 : 2;
      const double rate = dtype == DataType::kFp32 ? 16 : 1;
      const double weighing = Case(SpecOf(dtype, dim)).Cost() - 2 * dim * rate;
      EXPECT_EQ(Case(SpecOf(dtype, dim, true)).Cost(), products * dim * rate + passes * weighing);
    }
  }
  Case one_side(SpecOf(DataType::kBf16, 64, true));
  const double both = one_side.Cost();
  one_side.task().out_kv.data = nullptr;
  EXPECT_LT(one_side.Cost(), both / 2);
}

TEST(PairCostTest, WhatIsDoneToEachPairCosts) {
  for (const bool gradients : {false, true}) {
    AttentionSpec spec = SpecOf(DataType::kBf16, 64, gradients);
    const double plain = Case(spec).Cost();
    spec.modifiers.alibi_slopes = {0.5f, 0.25f};
    const double alibi = Case(spec).Cost();
    spec.modifiers.soft_cap = 3;
    const double cap = Case(spec).Cost();
    spec.dropout = Dropout{0.1, 1};
    const double dropout = Case(spec).Cost();
    EXPECT_GT(alibi, plain);
    EXPECT_GT(cap - alibi, alibi - plain);
    EXPECT_GT(dropout - cap, cap - alibi);
  }
}

// Row by row, counts keys that the row before has not seen.
int64_t VisibleKeysByRows(const CallView& call, Interval rows) {
  const Task& task = call.tasks[0].task;
  int64_t keys = 0;
  call.job.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
    Intervals before;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const Intervals now = call.job.mask->VisiblePacked(head, row);
      for (const Interval& span : now) {
        int64_t fresh = span.length();
        for (const Interval& old : before) fresh -= Intersect(span, old).length();
        keys += fresh < span.length() ? fresh : fresh + 256;
      }
      before = now;
    }
  });
  return std::min(keys, task.k_end - task.k_begin);
}

TEST(SeenKeysTest, StretchesOfRowsCountAsTheirRows) {
  std::mt19937 random(14);
  for (int round = 0; round < 100; ++round) {
    AttentionSpec spec = SpecOf(DataType::kBf16, 16);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(random() % most); };
    spec.sequences = {Rows(1 + any(300), 1 + any(6000)), Rows(1 + any(300), 1 + any(6000))};
    spec.masks.resize(1);
    Mask& mask = spec.masks[0];
    mask.causal = true;
    if (any(2) == 0) mask.window_left = any(3) * any(100);
    if (any(3) == 0) mask.always_visible = any(30);
    if (any(4) == 0) mask.chunk = 1 + any(60);
    const Case job(spec);
    const int64_t begin = any(spec.q_rows()), end = begin + 1 + any(spec.q_rows() - begin);
    ASSERT_EQ(VisibleKeys(job.call(), 0, {begin, end}), VisibleKeysByRows(job.call(), {begin, end}))
        << "round " << round;
  }
}

// Every part ends between tiles. None has more keys than the limit at which 256 thread blocks do a
// launch's largest work.
TEST(CutLongKeysTest, PartsAreOfWholeTilesAndOfBoundedWork) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    Case job(SpecOf(dtype, 128));
    Task& task = job.task().task;
    task.coverage = Coverage::kFull;
    task.k_begin = 100;
    task.k_end = int64_t{1} << 26;
    const std::vector<KernelTask> parts = CutLongKeys(job.call(), {});
    ASSERT_GT(parts.size(), 10u);
    int64_t at = task.k_begin;
    for (const KernelTask& part : parts) {
      EXPECT_EQ(part.task.k_begin, at);
      at = part.task.k_end;
      EXPECT_TRUE(at % 768 == 0 || at == task.k_end) << at;
      const auto keys = static_cast<double>(at - part.task.k_begin);
      EXPECT_LE(keys * 256 * 64 * job.Cost(), kMaxLaunchWork);
    }
    EXPECT_EQ(at, task.k_end);
    EXPECT_LE(parts.size(), (at / (kMaxLaunchWork / (256 * 64 * job.Cost()))) * 1.1 + 1);
    const size_t turns = CutLongKeys(job.call(), {kMaxLaunchWork, /*turns=*/2}).size();
    EXPECT_GE(turns, 2 * parts.size() - 2);
  }
}

// Rows that see few of many keys leave a task whole: a tile of rows with a window takes little
// time.
TEST(CutLongKeysTest, OnlyKeysThatRowsSeeCount) {
  AttentionSpec spec = SpecOf(DataType::kBf16, 16);
  spec.sequences = {Rows(3000, 3000)};
  spec.masks = {Causal()};
  const LongKeysRule little = {/*max_work=*/1};
  EXPECT_EQ(CutLongKeys(Case(spec).call(), little).size(), 4u);
  spec.masks[0].window_left = 400;
  Case window(spec);
  EXPECT_TRUE(CutLongKeys(window.call(), little).empty());
  for (int64_t row = 0; row < 3000; row += 64) {
    const int64_t keys = VisibleKeys(window.call(), 0, {row, std::min<int64_t>(row + 64, 3000)});
    EXPECT_GE(keys, std::min<int64_t>(row + 1, 400));
    EXPECT_LE(keys, 401 + 64 + 256);
  }
}

}  // namespace
}  // namespace annulus::cuda
