// The source of the sm_90a gradients' kernel on the emulator: tests in addition to the conformance
// suites.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/cuda/sm90/hopper_jobs.h"
#include "tests/worker/kernel/gradient_harness.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_plan.h"

namespace annulus::cuda {
namespace {

using reference::Input;
using reference::Upstream;

Input Normal(const AttentionSpec& spec, uint64_t seed) {
  Input input = reference::InputOf(spec);
  FillNormal(seed, reference::PrecisionOf(spec.dtype), 1, &input);
  return input;
}

Upstream UpstreamOf(const AttentionSpec& spec, const Input& input) {
  return reference::MakeUpstream(input, reference::PrecisionOf(spec.dtype),
                                 reference::PrecisionOf(spec.output_dtype()), true, 5);
}

bool Served(GradientHarness& harness) {
  const std::vector<KernelTask> tasks = harness.Tasks();
  return HopperServesGradients(harness.job(), tasks);
}

// True if this kernel serves the job. In any case the answer must be within the budget.
bool Check(const AttentionSpec& spec, uint64_t seed, const Cuts& cuts = {}) {
  const Input input = Normal(spec, seed);
  const Upstream up = UpstreamOf(spec, input);
  GradientHarness harness(spec, input, up, cuts);
  EXPECT_TRUE(
      GradientsWithinBudget(*MakeEmulatedHopperKernel(64 << 10, seed), spec, input, up, cuts))
      << Describe(spec, cuts);
  return Served(harness);
}

TEST(HopperGradientsTest, EveryTypeAndDimension) {
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    for (const int32_t dim : {8, 64, 72, 128}) {
      EXPECT_TRUE(Check(Causal(Spec(dtype, 2, 1, dim, 150, 290)), dim)) << dim;
      AttentionSpec spec = Causal(Spec(dtype, 2, 2, dim, 70, 150));
      spec.head_dim_v = 136 - dim;
      EXPECT_TRUE(Check(spec, dim + 1)) << dim;
    }
  }
}

// Tiles of slots have whole rows, and rows of three, five or seven heads do not fill them.
TEST(HopperGradientsTest, AnyGroupOfHeads) {
  for (const int32_t group : {1, 2, 3, 5, 7, 33, 64}) {
    const AttentionSpec spec = Spec(DataType::kBf16, 2 * group, 2, 72, group > 9 ? 5 : 40, 140);
    EXPECT_TRUE(Check(Causal(spec), group)) << group;
  }
  EXPECT_TRUE(Check(Causal(Spec(DataType::kFp16, 96, 1, 64, 3, 140)), 96));
  EXPECT_FALSE(Check(Causal(Spec(DataType::kBf16, 66, 1, 128, 3, 140)), 66));
}

// Scores of slots without a row would be 0, and e^0 over a row's e^-200 is infinite.
TEST(HopperGradientsTest, SlotsThatNobodyFillsAddNothing) {
  const AttentionSpec spec = Causal(Spec(DataType::kBf16, 6, 2, 128, 60, 140));
  Input input = Normal(spec, 7);
  for (double& value : input.q) value = 10;
  for (double& value : input.k) value = value > 0 ? -2 : -1.875;
  const Upstream up = UpstreamOf(spec, input);
  EXPECT_LT(up.lse[0], -150);
  EXPECT_TRUE(GradientsWithinBudget(*MakeEmulatedHopperKernel(64 << 10, 1), spec, input, up, {}));
}

TEST(HopperGradientsTest, LengthsAtTheEdgesOfTiles) {
  for (const int64_t rows : {1, 63, 64, 65, 128, 129}) {
    for (const int64_t keys : {1, 127, 128, 129}) {
      EXPECT_TRUE(Check(Causal(Spec(DataType::kBf16, 2, 2, 72, rows, keys)), rows * 1000 + keys));
      if (HasFailure()) return;
    }
  }
}

TEST(HopperGradientsTest, RandomJobsAreWithinTheErrorBudget) {
  int served = 0;
  for (uint64_t seed = 20261127; seed < 20261127 + 16; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomJob job(seed);
    served += Check(job.spec, seed, job.cuts) ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GE(served, 5);
}

// A window far from the first tokens, which stay visible: tiles between them are skipped. Heads
// have separate masks; one sees nothing.
TEST(HopperGradientsTest, MasksOfHeadsAndSpansFarApart) {
  AttentionSpec spec = Causal(Spec(DataType::kBf16, 4, 2, 64, 300, 900));
  spec.masks[0].window_left = 40;
  spec.masks[0].always_visible = 3;
  Mask other;
  other.causal = true;
  other.query_heads = {1};
  spec.masks.push_back(other);
  EXPECT_TRUE(Check(spec, 11));
}

// Tensor cores truncate every sum in the same direction; these errors must not add up over many
// rows.
TEST(HopperGradientsTest, LongSumsOfOneSignAreWithinTheBudget) {
  for (const bool queries : {false, true}) {
    const AttentionSpec spec =
        Spec(DataType::kBf16, 2, 2, 16, queries ? 3 : 6000, queries ? 6000 : 3);
    Input input = Normal(spec, 5);
    for (double& value : input.k) value = 1 + (value > 0 ? 0.25 : 0);
    Upstream up = UpstreamOf(spec, input);
    for (double& value : up.d_out) value = 1 + (value > 0 ? 0.25 : 0);
    EXPECT_TRUE(
        GradientsWithinBudget(*MakeEmulatedHopperKernel(256 << 10, 1), spec, input, up, {}));
  }
}

std::vector<std::byte> StateOf(const AttentionSpec& spec, const Input& input, const Cuts& cuts,
                               int64_t max_tables, uint64_t seed) {
  GradientHarness harness(spec, input, UpstreamOf(spec, input), cuts);
  EXPECT_TRUE(Served(harness));
  const absl::Status status = harness.Run(*MakeEmulatedHopperKernel(max_tables, seed));
  EXPECT_TRUE(status.ok()) << status;
  return harness.state();
}

// For all times at which copies and products complete, and for any number of launches of a call.
TEST(HopperGradientsTest, WhatIsLateAndLaunchesChangeNoBit) {
  const AttentionSpec spec = Causal(Spec(DataType::kBf16, 6, 2, 72, 110, 300));
  const Input input = Normal(spec, 3);
  Cuts cuts;
  cuts.keys = {170};
  const std::vector<std::byte> first = StateOf(spec, input, cuts, 1 << 20, 1);
  for (uint64_t seed = 2; seed < 6; ++seed)
    EXPECT_TRUE(first == StateOf(spec, input, cuts, seed < 4 ? 1 << 20 : 9 << 10, seed)) << seed;
}

// NaN and infinities affect the rows or keys that see them, and change no bit of others.
class NonfiniteTest : public testing::TestWithParam<DataType> {
 protected:
  static constexpr int64_t kRows = 150;
  static constexpr int32_t kDim = 64, kHeads = 2;

  reference::GradientAnswer AnswerOf(const Input& input, const Upstream& up) {
    GradientHarness harness(spec_, input, up, {});
    EXPECT_TRUE(Served(harness));
    const absl::Status status = harness.Run(*MakeEmulatedHopperKernel(64 << 10, 1));
    EXPECT_TRUE(status.ok()) << status;
    return harness.answer();
  }
  // Rows of head 0 with a non-finite number; the others equal those of `sound`.
  std::vector<int64_t> Nonfinite(const std::vector<float>& values,
                                 const std::vector<float>& sound) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < kRows; ++row) {
      bool finite = true, same = true;
      for (int64_t d = 0; d < kDim; ++d) {
        const size_t at = row * kHeads * kDim + d;
        finite &= std::isfinite(values[at]);
        same &= values[at] == sound[at];
      }
      if (!finite)
        rows.push_back(row);
      else
        EXPECT_TRUE(same) << row;
    }
    return rows;
  }
  static std::vector<int64_t> FromTo(int64_t begin, int64_t end) {
    std::vector<int64_t> rows;
    for (; begin < end; ++begin) rows.push_back(begin);
    return rows;
  }

  const AttentionSpec spec_ = Causal(Spec(GetParam(), kHeads, kHeads, kDim, kRows, kRows));
  const Input input_ = Normal(spec_, 21);
  const Upstream up_ = UpstreamOf(spec_, input_);
};

TEST_P(NonfiniteTest, KeysReachQueriesThatSeeThem) {
  const reference::GradientAnswer sound = AnswerOf(input_, up_);
  Input input = input_;
  input.k[100 * kHeads * kDim + 3] = HUGE_VAL;
  // With the LSE and delta of the forward pass without it.
  EXPECT_EQ(Nonfinite(AnswerOf(input, up_).dq, sound.dq), FromTo(100, kRows));
}

TEST_P(NonfiniteTest, QueriesAndTheirGradientsReachKeysThatTheySee) {
  const reference::GradientAnswer sound = AnswerOf(input_, up_);
  Input input = input_;
  input.q[70 * kHeads * kDim + 9] = std::nan("");
  const reference::GradientAnswer of_query = AnswerOf(input, up_);
  EXPECT_EQ(Nonfinite(of_query.dk, sound.dk), FromTo(0, 71));
  EXPECT_EQ(Nonfinite(of_query.dv, sound.dv), FromTo(0, 71));
  Upstream up = up_;
  up.d_out[40 * kHeads * kDim + 1] = HUGE_VAL;
  EXPECT_EQ(Nonfinite(AnswerOf(input_, up).dv, sound.dv), FromTo(0, 41));
}

INSTANTIATE_TEST_SUITE_P(Types, NonfiniteTest, testing::Values(DataType::kBf16, DataType::kFp16));

// Like rows whose scores are all −infinity: their content never reaches a key.
TEST_P(NonfiniteTest, RowsWithAnLseOfMinusInfinityAddNothing) {
  constexpr int64_t kRow = 70, kHead = kRow * kHeads;
  Upstream up = up_;
  up.lse[kHead] = -HUGE_VAL;
  Input without = input_, with = input_;
  for (int32_t d = 0; d < kDim; ++d) {
    without.q[kHead * kDim + d] = 0;
    with.q[kHead * kDim + d] = std::nan("");
  }
  const reference::GradientAnswer a = AnswerOf(without, up), b = AnswerOf(with, up);
  EXPECT_TRUE(Nonfinite(b.dk, a.dk).empty());
  EXPECT_TRUE(Nonfinite(b.dv, a.dv).empty());
  for (int32_t d = 0; d < kDim; ++d) EXPECT_EQ(b.dq[kHead * kDim + d], 0) << d;
  EXPECT_TRUE(Nonfinite(b.dq, a.dq).empty());
}

// The portable kernel serves all other jobs, in the same calls.
TEST(HopperGradientsTest, OthersAreServedToo) {
  EXPECT_FALSE(Check(Causal(Spec(DataType::kFp32, 2, 1, 24, 30, 50)), 1));
  EXPECT_FALSE(Check(Causal(Spec(DataType::kBf16, 2, 1, 136, 30, 50)), 2));
  EXPECT_FALSE(Check(Causal(Spec(DataType::kBf16, 2, 1, 12, 30, 50)), 3));
  EXPECT_FALSE(Check(Causal(Spec(DataType::kBf16, 1, 1, 16, 30, 50)), 4)) << "rows of 72 bytes";
  AttentionSpec spec = Causal(Spec(DataType::kBf16, 2, 1, 16, 30, 50));
  spec.modifiers.soft_cap = 2;
  EXPECT_FALSE(Check(spec, 5));
  spec.modifiers.soft_cap.reset();
  spec.deterministic = true;
  EXPECT_FALSE(Check(spec, 6));
}

}  // namespace
}  // namespace annulus::cuda
