#include "attention/planning/kernel_rates.h"

#include <gtest/gtest.h>

#include <iterator>
#include <utility>

namespace annulus {
namespace {

const std::vector<KernelRate> kRates = {{32, 1e-9, 1e-7}, {64, 1.5e-9, 2e-7}, {128, 4e-9, 2e-7}};
constexpr KernelRate kOfKeys[] = {{64, 1e-9, 1e-7, 2e-7}, {128, 2e-9, 1e-7, 4e-7}};
const KernelRates kForwardRates = {DataType::kFp32, Arithmetic::kOfType, kRates};

AttentionSpec Of(int32_t head_dim, int32_t head_dim_v = 0) {
  AttentionSpec spec;
  spec.head_dim = head_dim;
  spec.head_dim_v = head_dim_v;
  return spec;
}

TEST(KernelRatesTest, RatesAreLinearBetweenTheDimensionsThatWereMeasured) {
  const struct {
    int32_t dim;
    double pair_seconds, row_seconds;
  } cases[] = {{1, 1e-9, 1e-7},     {32, 1e-9, 1e-7},  {48, 1.25e-9, 1.5e-7}, {64, 1.5e-9, 2e-7},
               {96, 2.75e-9, 2e-7}, {128, 4e-9, 2e-7}, {256, 8e-9, 4e-7}};
  for (const auto& c : cases) {
    const KernelRate rate = RateOf(Of(c.dim), kForwardRates);
    EXPECT_NEAR(rate.pair_seconds, c.pair_seconds, 1e-15) << c.dim;
    EXPECT_NEAR(rate.row_seconds, c.row_seconds, 1e-15) << c.dim;
  }
  EXPECT_NEAR(RateOf(Of(32, 64), kForwardRates).pair_seconds, 1.25e-9, 1e-15) << "their mean";
}

TEST(KernelRatesTest, KeysHaveARateOfTheirOwn) {
  KernelRates measured = kForwardRates;
  measured.rates.assign(std::begin(kOfKeys), std::end(kOfKeys));
  for (const auto& [dim, key_seconds] :
       {std::pair(32, 2e-7), {64, 2e-7}, {96, 3e-7}, {128, 4e-7}, {256, 8e-7}}) {
    EXPECT_NEAR(RateOf(Of(dim), measured).key_seconds, key_seconds, 1e-15) << dim;
  }
  EXPECT_EQ(RateOf(Of(64), kForwardRates).key_seconds, 0) << "an older worker's";
}

TEST(KernelRatesTest, WorkTakesWhatItsPairsRowsAndKeysTake) {
  const KernelRate rate = {64, 2, 30, 500};
  EXPECT_EQ(SecondsOf({7, 0, 0}, rate), 14);
  EXPECT_EQ(SecondsOf({7, 3, 2}, rate), 14 + 90 + 1000);
  EXPECT_EQ(SecondsOf({7, 3, 2}, Scaled(rate, 0.5)), (14 + 90 + 1000) / 2);
}

// Five products instead of a forward pass' two.
TEST(KernelRatesTest, GradientsThatWereNotMeasuredTakeAsLongAsALargerDimension) {
  AttentionSpec spec = Of(128);
  spec.operation = Operation::kGradients;
  EXPECT_NEAR(RateOf(spec, kForwardRates).pair_seconds, 2.5 * 4e-9, 1e-15);
  spec = Of(32, 48);  // (3 · 32 + 2 · 48) / 2 = 96
  spec.operation = Operation::kGradients;
  EXPECT_NEAR(RateOf(spec, kForwardRates).pair_seconds, 2.75e-9, 1e-15);
}

// Three products of q and k's dimension, two of v's.
TEST(KernelRatesTest, GradientsTakeWhatWasMeasuredOfThemAtTheirDimensions) {
  const KernelRates measured = {DataType::kFp32, Arithmetic::kOfType, kRates,
                                Operation::kGradients};
  AttentionSpec spec = Of(64);
  spec.operation = Operation::kGradients;
  EXPECT_NEAR(RateOf(spec, measured).pair_seconds, 1.5e-9, 1e-15);
  spec = Of(80, 120);  // (3 · 80 + 2 · 120) / 5 = 96
  spec.operation = Operation::kGradients;
  EXPECT_NEAR(RateOf(spec, measured).pair_seconds, 2.75e-9, 1e-15);
}

TEST(KernelRatesTest, JobsCountWithTheirOwnKernelOrElseWithThatOfFp32) {
  const std::vector<KernelRates> kernels = {{DataType::kBf16, Arithmetic::kOfType, kRates},
                                            {DataType::kFp32, Arithmetic::kBf16x3, kRates},
                                            {DataType::kFp32, Arithmetic::kOfType, kRates}};
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  EXPECT_EQ(RatesOf(spec, kernels), &kernels[2]);
  spec.arithmetic = Arithmetic::kBf16x3;
  EXPECT_EQ(RatesOf(spec, kernels), &kernels[1]);
  EXPECT_EQ(RatesOf(spec, {&kernels[2], 1}), &kernels[2]);
  spec.arithmetic = Arithmetic::kOfType;
  spec.dtype = DataType::kBf16;
  EXPECT_EQ(RatesOf(spec, kernels), &kernels[0]);
  spec.dtype = DataType::kFp16;
  EXPECT_EQ(RatesOf(spec, kernels), &kernels[2]);
  EXPECT_EQ(RatesOf(spec, {&kernels[0], 2}), nullptr);
}

TEST(KernelRatesTest, GradientsCountWithTheirOwnOrElseWithForwardPasses) {
  const std::vector<KernelRates> kernels = {
      {DataType::kFp32, Arithmetic::kOfType, kRates, Operation::kGradients},
      {DataType::kFp32, Arithmetic::kOfType, kRates},
      {DataType::kBf16, Arithmetic::kOfType, kRates},
      {DataType::kFp16, Arithmetic::kOfType, kRates, Operation::kGradients}};
  AttentionSpec spec;
  spec.operation = Operation::kGradients;
  spec.dtype = DataType::kFp32;
  EXPECT_EQ(RatesOf(spec, kernels), &kernels[0]);
  spec.dtype = DataType::kBf16;
  EXPECT_EQ(RatesOf(spec, kernels), &kernels[2]) << "of its type";
  spec.dtype = DataType::kFp16;
  EXPECT_EQ(RatesOf(spec, kernels), &kernels[3]);
  EXPECT_EQ(RatesOf(spec, {&kernels[0], 3}), &kernels[1]) << "of fp32";
  spec.operation = Operation::kForward;
  EXPECT_EQ(RatesOf(spec, kernels), &kernels[1]) << "not the gradients'";
}

}  // namespace
}  // namespace annulus
