// Bias and bit mask, alone and with everything else: requirements of every AttentionKernel.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/worker/kernel/kernel_conformance.h"
#include "tests/worker/kernel/pair_cases.h"

namespace annulus {
namespace {

using reference::Input;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_P(KernelConformance, BiasAndBitMaskInEveryTypeAndNumberOfHeads) {
  for (int n = 0; n < 36; n += RunsASample() ? 5 : 1) {
    SCOPED_TRACE(testing::Message() << "case " << n);
    const AttentionSpec spec =
        PairsSpec(n, {Rows(70, 301), Rows(90, 40), Rows(21, 21), Rows(3, 0)});
    ASSERT_TRUE(WithinBudget(*kernel_, spec, WithPairs(spec, 300 + n), PairsCuts(n, {17, 90})));
  }
}

// The purpose of the offset: a vector is subtracted from the keys, and the offset restores its part
// of the scores, with all nonlinear options.
TEST_P(KernelConformance, AnOffsetGivesBackWhatSmoothedKeysLack) {
  AttentionSpec spec = Spec(DataType::kFp32, 4, 2, 16);
  spec.sequences = {Rows(40, 300)};
  spec.masks = {Causal()};
  spec.modifiers.soft_cap = 3;
  spec.modifiers.sinks = {0.5f, -1, 2, 0};
  spec.outputs.max_logit = true;
  const Input input = Normal(spec, 23);
  Input smoothed = input;
  for (size_t i = 0; i < smoothed.k.size(); ++i) smoothed.k[i] -= 0.75;
  AttentionSpec with = spec;
  with.modifiers.lse_offset = true;
  smoothed.offset = [&](int64_t, int32_t head, int64_t i) {
    double sum = 0;
    for (int d = 0; d < 16; ++d) sum += input.q[(i * 4 + head) * 16 + d];
    return spec.scale_or_default() * 0.75 * sum;
  };
  KernelHarness plain(spec, input, {}), given(with, smoothed, {});
  ASSERT_TRUE(plain.Run(*kernel_).ok());
  ASSERT_TRUE(given.Run(*kernel_).ok());
  const reference::Answer a = plain.answer(), b = given.answer();
  for (size_t i = 0; i < a.out.size(); ++i) ASSERT_NEAR(a.out[i], b.out[i], 1e-5) << i;
  for (size_t i = 0; i < a.lse.size(); ++i) {
    ASSERT_NEAR(a.lse[i], b.lse[i], 1e-5) << i;
    ASSERT_NEAR(a.max_logit[i], b.max_logit[i], 1e-5) << i;
  }
}

// Sequences and heads whose masks use the bit mask, beside others.
TEST_P(KernelConformance, TheBitMaskCountsOnlyWhereAMaskNamesIt) {
  AttentionSpec spec = Spec(DataType::kFp32, 4, 2, 20);
  spec.sequences = {Rows(30, 40), Rows(25, 33)};
  spec.masks = {Causal(), Causal(), Mask()};
  spec.masks[1].query_heads = {1, 2};
  spec.masks[1].bit_mask = true;
  spec.masks[2].bit_mask = true;
  spec.sequences[1].mask = 2;
  spec.bit_mask_heads = 4;
  ASSERT_TRUE(WithinBudget(*kernel_, spec, WithPairs(spec, 5), {}));
}

// Long rows: whole blocks without a mask boundary, where only the bias hides keys.
TEST_P(KernelConformance, LongRowsOfBias) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    AttentionSpec spec = Spec(dtype, 2, 1, 64);
    spec.sequences = {Rows(97, 1025)};
    spec.modifiers.bias = Bias{dtype, 2};
    spec.masks = {Mask()};
    spec.masks[0].bit_mask = true;
    ASSERT_TRUE(WithinBudget(*kernel_, spec, WithPairs(spec, 9), {}));
  }
}

// A bias of a causal shape is a causal mask, except that no blocks are skipped.
TEST_P(KernelConformance, ABiasOfMinusInfinityIsAMask) {
  AttentionSpec spec = Spec(DataType::kBf16, 2, 1, 12);
  spec.sequences = {Rows(300, 300)};
  Input input = Normal(spec, 17);
  spec.masks = {Causal()};
  KernelHarness masked(spec, input, {});
  ASSERT_TRUE(masked.Run(*kernel_).ok());
  spec.masks.clear();
  spec.modifiers.bias = Bias{DataType::kFp32, 1};
  input.bias = [](int64_t, int32_t, int64_t i, int64_t j) { return j > i ? -kInfinity : 0.0; };
  KernelHarness biased(spec, input, {});
  ASSERT_TRUE(biased.Run(*kernel_).ok());
  EXPECT_EQ(masked.answer().out, biased.answer().out);
  EXPECT_EQ(masked.answer().lse, biased.answer().lse);
}

TEST_P(KernelConformance, RowsFromWhichEverythingIsHiddenAreEmpty) {
  for (const bool by_bits : {false, true}) {
    AttentionSpec spec = Spec(DataType::kFp32, 2, 2, 24);
    spec.sequences = {Rows(50, 600)};
    if (!by_bits) spec.modifiers.bias = Bias{DataType::kFp16, 2};
    spec.masks = {Mask()};
    spec.masks[0].bit_mask = by_bits;
    spec.outputs.max_logit = true;
    Input input = Normal(spec, 11);
    // Odd rows of head 0 see nothing; row 4 sees one key, which is not in the first block.
    spec.bit_mask_heads = 2;
    const auto sees = [](int32_t head, int64_t i, int64_t j) {
      if (head == 0 && i == 4) return j == 400;
      return head == 1 || i % 2 == 0;
    };
    input.bias = [=](int64_t, int32_t head, int64_t i, int64_t j) {
      return sees(head, i, j) ? 0.25 : -kInfinity;
    };
    input.bit = [=](int64_t, int32_t head, int64_t i, int64_t j) { return sees(head, i, j); };
    if (by_bits) input.bias = nullptr;
    Input judged = input;
    judged.documents[0].rules = {reference::Rule{}};
    judged.documents[0].rules[0].bits = by_bits;
    KernelHarness harness(spec, input, {});
    ASSERT_TRUE(harness.Run(*kernel_).ok());
    const reference::Answer answer = harness.answer();
    ASSERT_TRUE(reference::CheckWithinBudget(judged, answer));
    for (int64_t row = 1; row < 50; row += 2) {
      EXPECT_EQ(answer.lse[row * 2], -kInfinity);
      EXPECT_EQ(answer.max_logit[row * 2], -kInfinity);
      for (int d = 0; d < 24; ++d) EXPECT_EQ(answer.out[row * 48 + d], 0.0f);
    }
    EXPECT_EQ(answer.out[4 * 48], static_cast<float>(input.v[400 * 48]));
  }
}

// Invisible keys and values, and bias and bits after a sequence's end.
TEST_P(KernelConformance, WhatBiasAndBitsHideCannotLeak) {
  for (const auto& [dtype, poison] :
       {std::pair(DataType::kBf16, std::nan("")), std::pair(DataType::kBf16, HUGE_VAL),
        std::pair(DataType::kBf16, -1e38), std::pair(DataType::kFp32, std::nan(""))}) {
    AttentionSpec spec = Spec(dtype, 2, 1, 12);
    spec.sequences = {Rows(40, 300), Rows(9, 30)};
    spec.modifiers.bias = Bias{DataType::kBf16, 1};
    spec.masks = {Mask()};
    spec.masks[0].bit_mask = true;
    Input input = Normal(spec, 17);
    constexpr int64_t kByBias = 257, kByBits = 3;
    input.bias = [](int64_t document, int32_t, int64_t i, int64_t j) {
      return document == 0 && j == kByBias ? -kInfinity
                                           : std::ldexp(static_cast<double>(i % 5), -2);
    };
    input.bit = [](int64_t document, int32_t, int64_t, int64_t j) {
      return document != 0 || j != kByBits;
    };
    KernelHarness clean(spec, input, {});
    ASSERT_TRUE(clean.Run(*kernel_).ok());
    for (const int64_t key : {kByBias, kByBits}) {
      for (int32_t d = 0; d < 12; ++d) input.k[key * 12 + d] = input.v[key * 12 + d] = poison;
    }
    KernelHarness poisoned(spec, input, {});
    ASSERT_TRUE(poisoned.Run(*kernel_).ok());
    EXPECT_EQ(clean.answer().out, poisoned.answer().out);
    EXPECT_EQ(clean.answer().lse, poisoned.answer().lse);
  }
}

TEST_P(KernelConformance, ANanInABiasShowsInItsRowAlone) {
  AttentionSpec spec = Spec(DataType::kFp32, 2, 2, 16);
  spec.sequences = {Rows(20, 70)};
  spec.modifiers.bias = Bias{DataType::kFp16, 2};
  Input input = Normal(spec, 19);
  input.bias = [](int64_t, int32_t head, int64_t i, int64_t j) {
    return head == 1 && i == 7 && j == 66 ? std::nan("") : 0.5;
  };
  KernelHarness harness(spec, input, {});
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  const reference::Answer answer = harness.answer();
  for (int64_t cell = 0; cell < 40; ++cell) {
    EXPECT_EQ(std::isnan(answer.lse[cell]), cell == 15) << cell;
    EXPECT_EQ(std::isnan(answer.out[cell * 16]), cell == 15) << cell;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelConformance, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
