// Gradients of jobs with a bias, a bit mask or an LSE offset: requirements of every
// AttentionKernel.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/worker/kernel/gradient_harness.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "tests/worker/kernel/pair_cases.h"

namespace annulus {
namespace {

using reference::GradientAnswer;
using reference::Input;
using reference::MakeUpstream;
using reference::Upstream;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class GradientPairs : public KernelConformance {
 protected:
  static Upstream Upstreams(const AttentionSpec& spec, const Input& input, uint64_t seed) {
    return MakeUpstream(input, reference::PrecisionOf(spec.dtype),
                        reference::PrecisionOf(spec.output_dtype()), seed % 2 == 0, seed + 2);
  }
  GradientAnswer Run(const AttentionSpec& spec, const Input& input, const Upstream& up) {
    GradientHarness harness(spec, input, up, {});
    EXPECT_TRUE(harness.Run(*kernel_).ok());
    return harness.answer();
  }
};

TEST_P(GradientPairs, AloneAndWithEverythingElse) {
  for (int n = 0; n < 10; n += RunsASample() ? 5 : 1) {
    SCOPED_TRACE(testing::Message() << "case " << n);
    AttentionSpec spec = PairsSpec(n, {Rows(40, 301), Rows(50, 20), Rows(21, 21), Rows(3, 0)});
    spec.operation = Operation::kGradients;
    spec.gradients.d_bias = n % 4 != 0 && n % 3 != 1;
    const Input input = WithPairs(spec, 300 + n);
    ASSERT_TRUE(GradientsWithinBudget(*kernel_, spec, input, Upstreams(spec, input, n),
                                      PairsCuts(n, {17, 60})));
  }
}

// Long rows, so that blocks and stripes of all heads run side by side.
TEST_P(GradientPairs, TheGradientOfABiasIsThatOfItsHeads) {
  for (const auto& [dtype, heads] :
       std::vector<std::pair<DataType, int32_t>>{{DataType::kFp32, 1},
                                                 {DataType::kFp32, 4},
                                                 {DataType::kBf16, 1},
                                                 {DataType::kBf16, 4}}) {
    AttentionSpec spec = Spec(dtype, 4, 2, 12);
    spec.sequences = {Rows(110, 520), Rows(30, 20)};
    spec.modifiers.bias = Bias{DataType::kBf16, heads};
    spec.modifiers.soft_cap = 1.1;
    spec.masks = {Causal()};
    spec.operation = Operation::kGradients;
    spec.gradients.d_bias = true;
    spec.scale = heads == 1 ? 0.0 : 0.3;
    Cuts cuts;
    cuts.key_shards = 2;
    cuts.striped = heads == 4;
    const Input input = WithPairs(spec, 55);
    ASSERT_TRUE(GradientsWithinBudget(*kernel_, spec, input, Upstreams(spec, input, 2), cuts));
  }
}

TEST_P(GradientPairs, AnOffsetAloneAndUnderASoftCap) {
  for (const auto& [dtype, cap] : std::vector<std::pair<DataType, bool>>{{DataType::kFp32, false},
                                                                         {DataType::kFp32, true},
                                                                         {DataType::kBf16, false},
                                                                         {DataType::kBf16, true}}) {
    AttentionSpec spec = Spec(dtype, 4, 2, 24);
    spec.sequences = {Rows(80, 300)};
    spec.modifiers.lse_offset = true;
    if (cap) spec.modifiers.soft_cap = 1.2;
    const Input input = WithPairs(spec, 41);
    ASSERT_TRUE(GradientsWithinBudget(*kernel_, spec, input, Upstreams(spec, input, 2), {}));
  }
}

// Rows in which a finite number hides all keys: their scores are equal in fp32, so each of n keys
// weighs 1/n. A large fp32 LSE has lost log n.
struct FiniteMask {
  DataType dtype;
  double bias;
};

// Runs the forward pass of the kernel. Returns its results as inputs of gradients.
Upstream ForwardOf(AttentionKernel& kernel, AttentionSpec spec, const Input& input,
                   const Upstream& random) {
  spec.operation = Operation::kForward;
  spec.gradients = {};
  KernelHarness harness(spec, input, {});
  EXPECT_TRUE(harness.Run(kernel).ok());
  const reference::Answer answer = harness.answer();
  Upstream up = random;
  up.out.assign(answer.out.begin(), answer.out.end());
  up.lse.assign(answer.lse.begin(), answer.lse.end());
  up.lse_rest.assign(answer.lse_rest.begin(), answer.lse_rest.end());
  return up;
}

// The largest difference, relative to the largest number.
double Off(const std::vector<float>& answer, const std::vector<double>& wanted) {
  double off = 0, largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    off = std::max(off, std::isnan(answer[i]) ? kInfinity : std::abs(answer[i] - wanted[i]));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return off / largest;
}

TEST_P(GradientPairs, RowsThatAFiniteNumberMasksWeighTheirKeysAlike) {
  constexpr double kBf16Lowest = -0x1.fep127, kFp32Lowest = -0x1.fffffep127;
  std::vector<FiniteMask> masks = {{DataType::kFp32, kFp32Lowest}, {DataType::kBf16, kBf16Lowest}};
  if (GetParam() != "reference") {  // Its scores are fp64, which -1e9 leaves distinct.
    masks.push_back({DataType::kFp32, -1e9});
    masks.push_back({DataType::kBf16, -0x1.dcp29});
  }
  for (const FiniteMask& mask : masks) {
    for (const bool sinks : {false, true}) {
      SCOPED_TRACE(testing::Message() << DataTypeName(mask.dtype) << " bias " << mask.bias
                                      << (sinks ? " with sinks" : ""));
      AttentionSpec spec = Spec(mask.dtype, 4, 2, 32);
      spec.sequences = {Rows(70, 300)};
      spec.modifiers.bias = Bias{mask.dtype, 1};
      if (sinks) spec.modifiers.sinks.assign(4, static_cast<float>(mask.bias));
      spec.operation = Operation::kGradients;
      spec.gradients.d_bias = true;
      spec.outputs.lse_rest = true;
      Input input = Normal(spec, 61);
      input.bias = [&mask](int64_t, int32_t, int64_t i, int64_t) {
        return i % 2 == 0 ? mask.bias : 0.0;
      };
      const Upstream up = ForwardOf(*kernel_, spec, input, Upstreams(spec, input, 3));
      const GradientAnswer answer = Run(spec, input, up);
      // fp32 without rounding of weights: exactly the scores of the naive implementation.
      const reference::Gradients wanted =
          NaiveGradients(input, up, reference::Precision::kFp32, {}, answer.bias_heads);
      const double most = mask.dtype == DataType::kFp32 ? 2e-5 : 1e-2;
      EXPECT_LE(Off(answer.dq, wanted.dq), most);
      EXPECT_LE(Off(answer.dk, wanted.dk), most);
      EXPECT_LE(Off(answer.dv, wanted.dv), most);
      EXPECT_LE(Off(answer.d_bias, wanted.d_bias), most);
      if (sinks) {
        EXPECT_LE(Off(answer.d_sink, wanted.d_sink), most);
      }
    }
  }
}

// A bias of a causal shape is a causal mask, except that no blocks are skipped.
TEST_P(GradientPairs, ABiasOfMinusInfinityIsAMask) {
  AttentionSpec spec = Spec(DataType::kFp32, 2, 1, 12);
  spec.sequences = {Rows(200, 200)};
  Input input = Normal(spec, 17);
  spec.masks = {Causal()};
  Input masked = reference::InputOf(spec);
  masked.q = input.q;
  masked.k = input.k;
  masked.v = input.v;
  const Upstream up = Upstreams(spec, masked, 4);
  const GradientAnswer a = Run(spec, masked, up);
  spec.masks.clear();
  spec.modifiers.bias = Bias{DataType::kFp16, 1};
  input.bias = [](int64_t, int32_t, int64_t i, int64_t j) { return j > i ? -kInfinity : 0.0; };
  const GradientAnswer b = Run(spec, input, up);
  EXPECT_EQ(a.dq, b.dq);
  EXPECT_EQ(a.dk, b.dk);
  EXPECT_EQ(a.dv, b.dv);
}

// Rounding to bf16 by integer arithmetic would make a number of this NaN.
TEST_P(GradientPairs, ANanOfABiasOfAnyBitsIsNan) {
  constexpr int64_t kRows = 6, kKeys = 40, kDim = 8, kKey = 17;
  for (const int64_t row : {2, 3}) {
    AttentionSpec spec = Spec(DataType::kBf16, 1, 1, kDim);
    spec.sequences = {Rows(kRows, kKeys)};
    spec.modifiers.bias = Bias{DataType::kFp32, 1};
    Input input = Normal(spec, 29);
    input.bias = [](int64_t, int32_t, int64_t, int64_t) { return 0.0; };
    const Upstream up = Upstreams(spec, input, 5);
    input.bias = [row](int64_t, int32_t, int64_t i, int64_t j) {
      return i == row && j == kKey ? std::nan("0xfffffffffffff") : 0.0;
    };
    const GradientAnswer answer = Run(spec, input, up);
    for (int64_t d = 0; d < kDim; ++d) {
      EXPECT_TRUE(std::isnan(answer.dk[kKey * kDim + d])) << d;
      EXPECT_TRUE(std::isnan(answer.dv[kKey * kDim + d])) << d;
      EXPECT_TRUE(std::isnan(answer.dq[row * kDim + d])) << d;
    }
  }
}

// The first row of a tile, and one among others.
bool IsBlind(int64_t row) { return row == 0 || row == 99; }

// Keys hidden from all rows, and rows from which everything is hidden.
TEST_P(GradientPairs, WhatBiasAndBitsHideCannotLeak) {
  constexpr int64_t kRows = 110, kKeys = 300, kDim = 12;
  for (const auto& [dtype, poison] :
       std::vector<std::pair<DataType, double>>{{DataType::kFp32, std::nan("")},
                                                {DataType::kFp32, HUGE_VAL},
                                                {DataType::kBf16, std::nan("")},
                                                {DataType::kBf16, HUGE_VAL}}) {
    SCOPED_TRACE(testing::Message() << DataTypeName(dtype) << " " << poison);
    AttentionSpec spec = Spec(dtype, 2, 1, kDim);
    spec.sequences = {Rows(kRows, kKeys)};
    spec.modifiers.bias = Bias{DataType::kBf16, 1};
    spec.masks = {Mask()};
    spec.masks[0].bit_mask = true;
    Input input = reference::InputOf(spec);
    FillNormal(17, reference::PrecisionOf(dtype), 1.0, &input);
    constexpr int64_t kByBias = 257, kByBits = 3;
    input.bias = [](int64_t, int32_t, int64_t i, int64_t j) {
      return j == kByBias || (IsBlind(i) && j % 2 == 0) ? -kInfinity
                                                        : std::ldexp(double(i % 5), -2);
    };
    // Blind rows see only one key.
    input.bit = [](int64_t, int32_t, int64_t i, int64_t j) {
      return j != kByBits && (!IsBlind(i) || j % 2 == 0 || j == 5);
    };
    Upstream up = Upstreams(spec, input, 4);
    const GradientAnswer clean = Run(spec, input, up);
    for (const int64_t key : {kByBias, kByBits}) {
      for (int64_t d = 0; d < kDim; ++d) {
        input.k[key * kDim + d] = input.v[key * kDim + d] = poison;
        EXPECT_EQ(clean.dk[key * kDim + d], 0.0f);
        EXPECT_EQ(clean.dv[key * kDim + d], 0.0f);
      }
    }
    const GradientAnswer keys = Run(spec, input, up);
    EXPECT_EQ(clean.dq, keys.dq);
    EXPECT_EQ(clean.dk, keys.dk);
    EXPECT_EQ(clean.dv, keys.dv);
    for (int64_t i = 0; i < kRows * 2 * kDim; ++i) {
      if (IsBlind(i / (2 * kDim))) input.q[i] = up.d_out[i] = poison;
    }
    const GradientAnswer rows = Run(spec, input, up);
    for (int64_t i = 0; i < kKeys * kDim; ++i) {
      if (i / kDim == 5) continue;
      ASSERT_EQ(clean.dk[i], rows.dk[i]) << i;
      ASSERT_EQ(clean.dv[i], rows.dv[i]) << i;
    }
    for (int64_t i = 0; i < kRows * 2 * kDim; ++i) {
      if (IsBlind(i / (2 * kDim))) continue;
      ASSERT_EQ(clean.dq[i], rows.dq[i]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, GradientPairs, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
