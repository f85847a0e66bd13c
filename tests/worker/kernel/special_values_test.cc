// No visible keys, NaN, infinity and scores out of range: requirements of every AttentionKernel.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus {
namespace {

using reference::Input;
using reference::InputOf;

// Every arithmetic that `kernel` has.
std::vector<AttentionSpec> InEveryArithmetic(const std::string& kernel, int32_t q_heads,
                                             int32_t dim) {
  std::vector<AttentionSpec> specs;
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16})
    specs.push_back(Spec(dtype, q_heads, 1, dim));
  if (kernel != "amx") return specs;
  specs.push_back(specs[0]);
  specs.back().arithmetic = Arithmetic::kBf16x3;
  return specs;
}

TEST_P(KernelConformance, RowsWithoutKeysAreZeroAndMinusInfinity) {
  AttentionSpec spec = Spec(DataType::kBf16, 4, 2, 24);
  spec.sequences = {Rows(50, 20), Rows(3, 0)};
  spec.masks = {Causal()};  // Bottom-right: the first 30 rows see nothing.
  KernelHarness harness(spec, Normal(spec, 11), {});
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  const reference::Answer answer = harness.answer();
  for (int64_t row = 0; row < spec.q_rows(); ++row) {
    if (row >= 30 && row < 50) continue;
    for (int32_t h = 0; h < 4; ++h) {
      EXPECT_EQ(answer.lse[row * 4 + h], -std::numeric_limits<float>::infinity());
      for (int32_t d = 0; d < 24; ++d) EXPECT_EQ(answer.out[(row * 4 + h) * 24 + d], 0.0f);
    }
  }
}

TEST_P(KernelConformance, ARowThatSeesNothingInATaskKeepsItsBits) {
  AttentionSpec spec = Spec(DataType::kFp32, 2, 1, 8);
  spec.sequences = {Rows(40, 40)};
  spec.masks = {Causal()};
  Cuts cuts;
  cuts.keys = {25};
  KernelHarness harness(spec, Normal(spec, 13), cuts);
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  std::vector<KernelTask> tasks = harness.Tasks();
  ASSERT_EQ(tasks.size(), 2u);
  // Rows 0 … 24 see nothing of keys 25 …. Their state may be anything, including negative zero and
  // NaN.
  const BlockLayout& layout = *harness.job().layout;
  const int64_t row_bytes = layout.RowBytes(BlockKind::kPartial, 2);
  std::byte* state = tasks[1].out_q.data;
  for (int64_t i = 0; i < 25 * row_bytes / 4; ++i) {
    const float odd = i % 3 == 0 ? -0.0f : std::nanf("");
    std::memcpy(state + 4 * i, &odd, 4);
  }
  const std::vector<std::byte> before(state, state + 25 * row_bytes);
  ASSERT_TRUE(kernel_->Accumulate(harness.job(), {&tasks[1], 1}, {}).ok());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), state));
}

// NaN and infinity in keys that some rows do not see: those rows get the same bits as without them.
TEST_P(KernelConformance, WhatIsMaskedCannotLeak) {
  for (AttentionSpec spec : InEveryArithmetic(GetParam(), 2, 12)) {
    SCOPED_TRACE(DataTypeName(spec.dtype));
    spec.sequences = {Rows(300, 300)};
    spec.masks = {Causal()};
    const Input whole = Normal(spec, 17);
    KernelHarness clean(spec, whole, {});
    ASSERT_TRUE(clean.Run(*kernel_).ok());
    const reference::Answer a = clean.answer();
    for (const int64_t hidden : {3, 255, 256, 290}) {
      for (const double poison : {std::nan(""), HUGE_VAL}) {
        Input input = whole;
        for (int32_t d = 0; d < 12; ++d) {
          input.k[hidden * 12 + d] = poison;
          input.v[hidden * 12 + d] = poison;
        }
        KernelHarness poisoned(spec, input, {});
        ASSERT_TRUE(poisoned.Run(*kernel_).ok());
        const reference::Answer b = poisoned.answer();
        for (int64_t i = 0; i < hidden * 2 * 12; ++i) ASSERT_EQ(a.out[i], b.out[i]) << i;
        for (int64_t i = 0; i < hidden * 2; ++i) ASSERT_EQ(a.lse[i], b.lse[i]) << i;
      }
    }
  }
}

TEST_P(KernelConformance, ANanThatIsSeenShows) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 4);
  spec.sequences = {Rows(2, 30)};
  for (const bool every : {false, true}) {
    Input input = Normal(spec, 19);
    for (size_t i = 0; i < input.k.size(); ++i)
      if (every || i == 40) input.k[i] = std::nan("");
    KernelHarness harness(spec, input, {});
    ASSERT_TRUE(harness.Run(*kernel_).ok());
    for (const float value : harness.answer().out) EXPECT_TRUE(std::isnan(value));
    for (const float value : harness.answer().lse) EXPECT_TRUE(std::isnan(value));
  }
}

// An infinite key causes scores of −∞ for queries that point away from it, with weight 0, and of +∞
// for the others, whose rows are lost. An infinite value affects its column of the rows that see
// it. All other results are within the budget, in masked and unmasked blocks.
TEST_P(KernelConformance, InfinitiesCountAsWhatTheyAre) {
  for (AttentionSpec spec : InEveryArithmetic(GetParam(), 2, 40)) {
    spec.sequences = {Rows(60, 560)};
    spec.masks = {Causal()};
    Input input = Normal(spec, 23);
    for (const int64_t key : {7, 300, 530}) input.k[key * 40 + 33] = -HUGE_VAL;
    for (int64_t row = 0; row < 120; ++row) {
      double& q = input.q[row * 40 + 33];
      q = row % 5 == 0 ? -std::fabs(q) : 0.25 + std::fabs(q);
    }
    KernelHarness harness(spec, input, {});
    ASSERT_TRUE(harness.Run(*kernel_).ok());
    const reference::Answer answer = harness.answer();
    for (int64_t row = 0; row < 120; ++row) {
      EXPECT_EQ(std::isnan(answer.lse[row]), row % 5 == 0) << row;
    }
    EXPECT_TRUE(reference::CheckWithinBudget(input, answer));

    for (const double infinite : {HUGE_VAL, -HUGE_VAL}) {
      input = Normal(spec, 29);
      input.v[11 * 40 + 3] = infinite;
      KernelHarness second(spec, input, {});
      ASSERT_TRUE(second.Run(*kernel_).ok());
      const std::vector<float> out = second.answer().out;
      for (int64_t i = 0; i < 120 * 40; ++i) {
        if (i % 40 == 3) {
          EXPECT_EQ(out[i], static_cast<float>(infinite)) << i;
        } else {
          EXPECT_TRUE(std::isfinite(out[i])) << i;
        }
      }
    }
  }
}

// Like InfinitiesCountAsWhatTheyAre, in a last block of fewer keys, all of which every row sees.
TEST_P(KernelConformance, InfinitiesInABlockOfFewKeysCountAsWhatTheyAre) {
  for (AttentionSpec spec : InEveryArithmetic(GetParam(), 2, 40)) {
    spec.sequences = {Rows(60, 352)};
    Input input = Normal(spec, 37);
    input.k[300 * 40 + 33] = -HUGE_VAL;
    for (int64_t row = 0; row < 120; ++row) {
      double& q = input.q[row * 40 + 33];
      q = row % 5 == 0 ? -std::fabs(q) : 0.25 + std::fabs(q);
    }
    KernelHarness keys(spec, input, {});
    ASSERT_TRUE(keys.Run(*kernel_).ok());
    const reference::Answer answer = keys.answer();
    for (int64_t row = 0; row < 120; ++row) {
      EXPECT_EQ(std::isnan(answer.lse[row]), row % 5 == 0) << row;
    }
    EXPECT_TRUE(reference::CheckWithinBudget(input, answer));

    input = Normal(spec, 41);
    input.v[340 * 40 + 3] = HUGE_VAL;
    KernelHarness values(spec, input, {});
    ASSERT_TRUE(values.Run(*kernel_).ok());
    const std::vector<float> out = values.answer().out;
    for (int64_t i = 0; i < 120 * 40; ++i) {
      EXPECT_EQ(std::isinf(out[i]), i % 40 == 3) << i;
      EXPECT_FALSE(std::isnan(out[i])) << i;
    }
  }
}

// A query of infinities has scores of ±∞ and NaN. A soft cap changes ±∞ to ±cap. Beside a sink, a
// score of −∞ has no weight.
TEST_P(KernelConformance, AnInfiniteQueryIsLostAloneAndACapSavesIt) {
  // Dimensions whose scales are powers of two, or above or below the nearest fp32 number.
  for (const int32_t dim : {1, 16, 40, 64, 96, 256}) {
    for (AttentionSpec spec : InEveryArithmetic(GetParam(), 1, dim)) {
      SCOPED_TRACE(testing::Message() << DataTypeName(spec.dtype) << " of " << dim);
      spec.sequences = {Rows(40, 300)};
      const int32_t place = dim == 1 ? 0 : 2;
      for (const bool capped : {false, true}) {
        if (capped) spec.modifiers.soft_cap = 3;
        Input input = Normal(spec, 31);
        input.q[20 * dim + place] = HUGE_VAL;
        for (int64_t key = 0; key < 300; ++key)
          input.k[key * dim + place] += input.k[key * dim + place] < 0 ? -1 : 1;
        KernelHarness harness(spec, input, {});
        ASSERT_TRUE(harness.Run(*kernel_).ok());
        const reference::Answer answer = harness.answer();
        for (int64_t row = 0; row < 40; ++row) {
          EXPECT_EQ(std::isnan(answer.lse[row]), row == 20 && !capped) << row << ", " << capped;
        }
        EXPECT_TRUE(reference::CheckWithinBudget(input, answer)) << capped;
      }
    }
  }
}

TEST_P(KernelConformance, AnInfiniteQueryThatSeesOnlyMinusInfinityHasItsSink) {
  for (AttentionSpec spec : InEveryArithmetic(GetParam(), 1, 1)) {
    SCOPED_TRACE(DataTypeName(spec.dtype));
    spec.sequences = {Rows(40, 300)};
    spec.modifiers.sinks = {0};
    Input input = Normal(spec, 33);
    for (double& k : input.k) k = -1 - std::fabs(k);
    input.q[20] = HUGE_VAL;
    KernelHarness harness(spec, input, {});
    ASSERT_TRUE(harness.Run(*kernel_).ok());
    const reference::Answer answer = harness.answer();
    EXPECT_EQ(answer.lse[20], 0);
    EXPECT_EQ(answer.out[20], 0);
  }
}

// Scores of 32 to 1,021: each largest score must have exactly weight 1.
TEST_P(KernelConformance, EqualLargeScoresGiveTheMeanOfV) {
  AttentionSpec spec = Spec(DataType::kBf16, 1, 1, 128);
  spec.out_dtype = DataType::kFp32;
  spec.sequences = {Rows(40, 1024)};
  for (const double number : {1.6875, 3.0, 5.15625, 8.0, 9.5}) {
    Input input = InputOf(spec);
    std::fill(input.q.begin(), input.q.end(), number);
    std::fill(input.k.begin(), input.k.end(), number);
    std::fill(input.v.begin(), input.v.end(), 1.0);
    KernelHarness harness(spec, input, {});
    ASSERT_TRUE(harness.Run(*kernel_).ok());
    for (const float value : harness.answer().out) ASSERT_EQ(value, 1.0f) << number;
  }
}

// One large product and 255 products of 1, which a single chain of sums would round away one by
// one.
TEST_P(KernelConformance, SmallTermsOfALargeScoreCount) {
  AttentionSpec spec = Spec(DataType::kBf16, 1, 1, 256);
  spec.scale = 1;
  spec.sequences = {Rows(40, 2)};
  Input input = InputOf(spec);
  std::fill(input.q.begin(), input.q.end(), 1.0);
  input.k[0] = input.k[256] = 0x1p24;
  std::fill_n(input.k.begin() + 1, 255, 1.0);
  std::fill_n(input.v.begin(), 256, 1.0);
  KernelHarness harness(spec, input, {});
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  for (const float value : harness.answer().out) ASSERT_EQ(value, 1.0f);
}

// Numbers that a job left in the memory of a kernel's threads must not affect later jobs: the bits
// equal those of a new kernel. One thread, whose first tile, wherever its visible keys begin, finds
// the remains.
TEST_P(KernelConformance, NothingIsLeftOfAnEarlierJob) {
  const auto used = MakeKernel(GetParam(), /*threads=*/1);
  const int64_t rows = KernelsAreSlow() ? 100 : 400, keys = KernelsAreSlow() ? 400 : 1300;
  for (AttentionSpec spec : InEveryArithmetic(GetParam(), 2, 40)) {
    spec.sequences = {Rows(rows, keys)};
    Input lost = Normal(spec, 12);
    std::fill(lost.v.begin(), lost.v.end(), std::nan(""));
    AttentionSpec next = spec;
    next.masks = {Causal()};
    for (int i = 0; i < (GetParam() == "reference" ? 1 : Sampled(8)); ++i) {
      SCOPED_TRACE(testing::Message() << DataTypeName(spec.dtype) << " " << i);
      next.masks[0].window_left = keys / 2 + 24 * i;
      // Step by step, where others are processed in one step.
      next.modifiers.soft_cap = i == 1 ? std::make_optional(5.0) : std::nullopt;
      const Input input = Normal(next, 14 + i);
      KernelHarness before(spec, lost, {}), after(next, input, {}), alone(next, input, {});
      ASSERT_TRUE(before.Run(*used).ok());
      ASSERT_TRUE(after.Run(*used).ok());
      ASSERT_TRUE(alone.Run(*MakeKernel(GetParam(), /*threads=*/1)).ok());
      const reference::Answer a = after.answer(), b = alone.answer();
      EXPECT_EQ(a.out, b.out);
      EXPECT_EQ(a.lse, b.lse);
    }
  }
}

// Several blocks may be one step of a kernel, for many rows and for few.
TEST_P(KernelConformance, ANanThatIsSeenShowsThoughItsScoreIsMinusInfinity) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    AttentionSpec spec = Spec(dtype, 1, 1, 128);
    for (const int64_t rows : {3, 40, 200}) {
      spec.sequences = {Rows(rows, 1024)};
      Input input = InputOf(spec);
      std::fill(input.q.begin(), input.q.end(), 1.0);
      std::fill_n(input.k.begin(), 256 * 128, -std::numeric_limits<double>::infinity());
      input.v[0] = std::numeric_limits<double>::quiet_NaN();
      KernelHarness harness(spec, input, {});
      ASSERT_TRUE(harness.Run(*kernel_).ok());
      const reference::Answer answer = harness.answer();
      for (int64_t row = 0; row < rows; ++row) {
        ASSERT_TRUE(std::isnan(answer.out[row * 128])) << static_cast<int>(dtype) << " " << row;
        ASSERT_FALSE(std::isnan(answer.out[row * 128 + 1])) << static_cast<int>(dtype);
      }
    }
  }
}

// Scores of −4e38, which fp32 cannot represent but fp64 can: such a row is lost and reports it. It
// is not "nothing seen", in any order of its keys.
TEST_P(KernelConformance, ScoresBelowTheRangeOfFp32AreNotNothing) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 1);
  spec.sequences = {Rows(300, 600)};
  spec.masks = {Causal()};
  spec.masks[0].alignment = Mask::Alignment::kTopLeft;
  spec.scale = 1;
  for (const int64_t in_range : {0, 40, 280}) {  // The one key whose score fp32 can represent.
    Input input = InputOf(spec);
    std::fill(input.q.begin(), input.q.end(), 2e19);
    std::fill(input.k.begin(), input.k.end(), -2e19);
    for (size_t j = 0; j < input.v.size(); ++j) input.v[j] = static_cast<double>(j + 1);
    input.k[in_range] = 0;
    Cuts cuts;
    cuts.keys = {30, 256};
    for (const bool call_per_task : {false, true}) {
      cuts.call_per_task = call_per_task;
      KernelHarness harness(spec, input, cuts);
      ASSERT_TRUE(harness.Run(*kernel_).ok());
      const reference::Answer answer = harness.answer();
      for (int64_t row = 0; row < 300; ++row) {
        if (row >= in_range) {
          EXPECT_EQ(answer.out[row], static_cast<float>(in_range + 1)) << row;
          EXPECT_EQ(answer.lse[row], 0.0f) << row;
        } else if (GetParam() != "reference") {  // The reference stores weights of fp64 numbers.
          EXPECT_TRUE(std::isnan(answer.out[row])) << row;
          EXPECT_TRUE(std::isnan(answer.lse[row])) << row;
        }
        EXPECT_NE(answer.lse[row], -std::numeric_limits<float>::infinity()) << row;
      }
    }
  }
}

TEST_P(KernelConformance, RowsThatLostTheirScoresMergeAsOthersDo) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 1);
  spec.sequences = {Rows(1, 2)};
  spec.scale = 1;
  for (const double second : {-2e19, 1e-19}) {
    Input input = InputOf(spec);
    input.q = {2e19};
    input.k = {-2e19, second};
    input.v = {3, 5};
    Cuts cuts;
    cuts.keys = {1};
    KernelHarness one(spec, input, cuts), two(spec, input, cuts);
    std::vector<KernelTask> left = one.Tasks(), right = two.Tasks();
    KernelOp op;
    for (const BlockView& target : {left[0].out_q, right[0].out_q}) {
      op.kind = KernelOp::Kind::kIdentity;
      op.target = target;
      ASSERT_TRUE(kernel_->Apply(one.job(), op).ok());
    }
    ASSERT_TRUE(kernel_->Accumulate(one.job(), {&left[0], 1}, {}).ok());
    ASSERT_TRUE(kernel_->Accumulate(two.job(), {&right[1], 1}, {}).ok());
    op.kind = KernelOp::Kind::kMerge;
    op.source = right[0].out_q;
    op.target = left[0].out_q;
    ASSERT_TRUE(kernel_->Apply(one.job(), op).ok());
    ASSERT_TRUE(one.FinishAll(*kernel_).ok());
    const float out = one.answer().out[0], lse = one.answer().lse[0];
    if (second > 0) {
      EXPECT_EQ(out, 5.0f);
      EXPECT_NEAR(lse, 2.0f, 1e-6);
    } else {
      EXPECT_NE(lse, -std::numeric_limits<float>::infinity());
      EXPECT_TRUE(GetParam() == "reference" || (std::isnan(out) && std::isnan(lse)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelConformance, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
