// Soft cap, ALiBi and sinks, alone and together: requirements of every AttentionKernel.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus {
namespace {

using reference::Input;
using reference::InputOf;

constexpr int kCap = 1, kAlibi = 2, kSinks = 4;

// Soft cap, ALiBi and sinks according to the bits of `which`.
ScoreModifiers Some(int which, int32_t heads) {
  ScoreModifiers modifiers;
  if ((which & kCap) != 0) modifiers.soft_cap = 1.7;
  for (int32_t head = 0; head < heads; ++head) {
    if ((which & kAlibi) != 0) modifiers.alibi_slopes.push_back(std::ldexp(1.0f, -head) - 0.2f);
    if ((which & kSinks) != 0) modifiers.sinks.push_back(1.5f * head - 2);
  }
  return modifiers;
}

TEST_P(KernelConformance, ModifiersAloneAndTogetherInEveryType) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (int which = 1; which < 8; ++which) {
      if (RunsASample() && which % 3 != static_cast<int>(dtype) % 3) continue;  // One type each.
      AttentionSpec spec = Spec(dtype, 6, 3, 40);
      spec.head_dim_v = 33;
      spec.sequences = {Rows(70, 300), Rows(40, 9), Rows(21, 21)};
      spec.modifiers = Some(which, spec.q_heads);
      if (which % 2 == 0) spec.masks = {Causal()};
      if (which % 3 == 0) spec.masks = {Mask()};
      if (which % 3 == 0) spec.masks[0].alignment = Mask::Alignment::kTopLeft;
      Cuts cuts;
      cuts.keys = {37, 100};
      cuts.q_heads = {2};
      cuts.key_shards = 1 + which % 3;
      cuts.striped = which > 3;
      SCOPED_TRACE(testing::Message() << which);
      ASSERT_TRUE(WithinBudget(*kernel_, spec, Normal(spec, 50 + which), cuts));
    }
  }
}

TEST_P(KernelConformance, RandomJobsWithModifiers) {
  std::mt19937_64 random(77);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int i = 0; i < Sampled(20); ++i) {
    SCOPED_TRACE(testing::Message() << "seed 77 case " << i);
    const DataType dtypes[] = {DataType::kFp32, DataType::kBf16, DataType::kFp16};
    AttentionSpec spec = Spec(dtypes[below(3)], 1, 1, 1);
    spec.kv_heads = static_cast<int32_t>(1 + below(3));
    spec.q_heads = spec.kv_heads * static_cast<int32_t>(1 + below(4));
    spec.head_dim = static_cast<int32_t>(1 + below(140));
    spec.head_dim_v = static_cast<int32_t>(1 + below(140));
    spec.sequences = {Rows(below(130), below(500)), Rows(below(130), below(150))};
    if (below(3) > 0) spec.masks = {Causal()};
    if (!spec.masks.empty() && below(2) == 0) spec.masks[0].window_left = below(90);
    spec.modifiers = Some(static_cast<int>(1 + below(7)), spec.q_heads);
    if (spec.modifiers.soft_cap)
      spec.modifiers.soft_cap = std::exp(static_cast<double>(below(8)) - 2);
    Cuts cuts;
    cuts.keys = {1 + below(90), 100 + below(200)};
    cuts.key_shards = static_cast<int>(1 + below(4));
    cuts.striped = below(2) == 0;
    cuts.call_per_task = below(2) == 0;
    ASSERT_TRUE(WithinBudget(*kernel_, spec, Normal(spec, 900 + i), cuts));
  }
}

// Scores of ±1e4 and beyond fp32, before and after a cap that reduces them.
TEST_P(KernelConformance, LargeLogitsAreCapped) {
  for (const double scale : {64.0, std::ldexp(1.0, 120)}) {
    AttentionSpec spec = Spec(DataType::kFp32, 2, 2, 64);
    spec.sequences = {Rows(40, 300)};
    spec.scale = scale;
    spec.masks = {Causal()};
    spec.modifiers.soft_cap = 30;
    Input input = Normal(spec, 7);
    for (std::vector<double>* tensor : {&input.q, &input.k})
      for (double& value : *tensor) value = std::round(value * 8) / 8;
    ASSERT_TRUE(WithinBudget(*kernel_, spec, input, {}));
  }
}

TEST_P(KernelConformance, WhatIsMaskedCannotLeakThroughModifiers) {
  for (const double poison : {std::nan(""), HUGE_VAL, -1e38}) {
    AttentionSpec spec = Spec(DataType::kBf16, 2, 1, 12);
    spec.sequences = {Rows(300, 300)};
    spec.masks = {Causal()};
    spec.modifiers = Some(kCap | kAlibi | kSinks, 2);
    Input input = Normal(spec, 17);
    KernelHarness clean(spec, input, {});
    ASSERT_TRUE(clean.Run(*kernel_).ok());
    constexpr int64_t kHidden = 257;
    for (int32_t d = 0; d < 12; ++d) {
      input.k[kHidden * 12 + d] = poison;
      input.v[kHidden * 12 + d] = poison;
    }
    KernelHarness poisoned(spec, input, {});
    ASSERT_TRUE(poisoned.Run(*kernel_).ok());
    const reference::Answer a = clean.answer(), b = poisoned.answer();
    for (int64_t i = 0; i < kHidden * 2 * 12; ++i) ASSERT_EQ(a.out[i], b.out[i]) << i;
    for (int64_t i = 0; i < kHidden * 2; ++i) ASSERT_EQ(a.lse[i], b.lse[i]) << i;
  }
}

TEST_P(KernelConformance, ARowThatSeesNothingHasItsSinkAsLse) {
  AttentionSpec spec = Spec(DataType::kBf16, 4, 2, 24);
  spec.sequences = {Rows(50, 20), Rows(3, 0)};
  spec.masks = {Causal()};  // Bottom-right: the first 30 rows see nothing.
  spec.modifiers = Some(kSinks | kAlibi | kCap, 4);
  KernelHarness harness(spec, Normal(spec, 11), {});
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  const reference::Answer answer = harness.answer();
  for (int64_t row = 0; row < spec.q_rows(); ++row) {
    if (row >= 30 && row < 50) continue;
    for (int32_t h = 0; h < 4; ++h) {
      EXPECT_EQ(answer.lse[row * 4 + h], spec.modifiers.sinks[h]);
      for (int32_t d = 0; d < 24; ++d) EXPECT_EQ(answer.out[(row * 4 + h) * 24 + d], 0.0f);
    }
  }
}

// A sink far above every score takes all the weight; one far below takes none.
TEST_P(KernelConformance, SinksFarFromTheScores) {
  for (const float sink : {1e4f, -1e4f, 3e38f, -3e38f}) {
    AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 8);
    spec.sequences = {Rows(5, 30)};
    spec.modifiers.sinks = {sink};
    ASSERT_TRUE(WithinBudget(*kernel_, spec, Normal(spec, 3), {})) << sink;
  }
}

// All keys have the same score without ALiBi, so ALiBi alone decides, by whole rows of distance.
TEST_P(KernelConformance, AlibiFollowsTheAlignmentOfTheMask) {
  for (const auto alignment : {Mask::Alignment::kBottomRight, Mask::Alignment::kTopLeft}) {
    AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 1);
    spec.sequences = {Rows(2, 1), Rows(3, 9)};
    spec.masks = {Mask()};
    spec.masks[0].alignment = alignment;
    spec.modifiers.alibi_slopes = {30.0f};  // The nearest key takes all the weight.
    Input input = InputOf(spec);
    for (size_t j = 0; j < input.v.size(); ++j) input.v[j] = static_cast<double>(j);
    KernelHarness harness(spec, input, {});
    ASSERT_TRUE(harness.Run(*kernel_).ok());
    const float first = alignment == Mask::Alignment::kTopLeft ? 1 : 7;
    const std::vector<float> expected = {0, 0, first, first + 1, first + 2};
    for (size_t row = 0; row < 5; ++row)
      EXPECT_NEAR(harness.answer().out[row], expected[row], 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelConformance, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
