#include "attention/numerics/pair_error.h"

#include <cmath>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr double kHalfUlp = 0x1p-24;

// For vectors of 2 numbers, whose product may have an error of 2 half ulps of its sizes.
PairSizes Sizes() {
  PairSizes sizes;
  sizes.head_dim = sizes.value_dim = 2;
  sizes.weight = 0.5;
  return sizes;
}

TEST(PairErrorTest, AWeightIsOffByItsExponent) {
  PairSizes sizes = Sizes();
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).weight, 0.5 * 3 * kHalfUlp);
  sizes.product = 4;  // Two roundings in its sum and one by the scale.
  sizes.addends = 5;
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).weight, 0.5 * (12 + 5 + 3) * kHalfUlp);
  sizes.slope = 0.25;  // A soft cap reduces the product's error to this fraction.
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).weight, 0.5 * (3 + 5 + 3) * kHalfUlp);
  sizes.kept = 2;
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).weight, (3 + 5 + 3) * kHalfUlp);
  EXPECT_EQ(ErrorOfPair(sizes).d_bias, 0);
  EXPECT_EQ(ErrorOfPair(sizes).d_score, 0);
}

// An exponent of 120 would permit anything.
TEST(PairErrorTest, AdditionsChangeNoMoreThanAnEighth) {
  PairSizes sizes = Sizes();
  sizes.addends = 0x1p21 - 3;
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).weight, 0.5 * 0.125);
  sizes.addends = 2e9;
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).weight, 0.5 * 0.125);
  sizes.product = 4;
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).weight, 0.5 * (0.125 + 12 * kHalfUlp));
}

TEST(PairErrorTest, WhatCancelsIsOffByWhatItIsMadeOf) {
  PairSizes sizes = Sizes();
  sizes.slope = 0.5;
  sizes.value_product = 3;
  sizes.delta = 7;
  const PairError error = ErrorOfPair(sizes);
  EXPECT_DOUBLE_EQ(error.d_bias, 0.5 * 2 * (3 + 7) * kHalfUlp);
  EXPECT_DOUBLE_EQ(error.d_score, 0.5 * 0.5 * 2 * 3 * kHalfUlp);
  EXPECT_DOUBLE_EQ(error.delta, 0.5 * 0.5 * 2 * 7 * kHalfUlp);
}

TEST(PairErrorTest, WhatIsLeftIsOffByItsWeight) {
  PairSizes sizes = Sizes();
  sizes.difference = 8;
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).d_score, 0.5 * 8 * 3 * kHalfUlp);
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).d_bias, 0.5 * 8 * 3 * kHalfUlp);
  sizes.capped = true;
  sizes.slope = 0;  // The slope is 1 − t².
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).d_score, 0.5 * 8 * 6 * kHalfUlp);
}

TEST(PairErrorTest, LongerProductsAreOffByTheRootOfTheirLength) {
  PairSizes sizes = Sizes();
  sizes.value_product = 1;
  const double of_two = ErrorOfPair(sizes).d_bias;
  sizes.value_dim = 128;
  EXPECT_DOUBLE_EQ(ErrorOfPair(sizes).d_bias, 8 * of_two);
}

TEST(PairErrorTest, SumsAllowTwiceTheRootOfTheSumOfSquares) {
  ErrorOfSum sum;
  EXPECT_EQ(sum.Allowed(), 0);
  sum.Add(3);
  EXPECT_EQ(sum.Allowed(), 6);
  sum.Add(4);
  EXPECT_EQ(sum.Allowed(), 10);
}

}  // namespace
}  // namespace annulus
