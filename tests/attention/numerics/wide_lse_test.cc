#include "attention/numerics/wide_lse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "attention/numerics/partial.h"
#include "tests/seed.h"

namespace annulus {
namespace {

// long double has 64 bits, so the products below have a relative error of at most 2^-60.
constexpr long double kLog2e = 1.442695040888963407359924681001892137L;

TEST(WideLseTest, ARoundedLseAndItsRestAreTheWhole) {
  std::mt19937_64 random(TestSeed());
  std::uniform_real_distribution<double> exponent(-10, 60), low(-40, 40);
  for (int i = 0; i < 10000; ++i) {
    const double sign = i % 2 == 0 ? 1 : -1;
    const auto score = static_cast<float>(sign * std::exp2(exponent(random)));
    const WideLse lse = {score, low(random)};
    const RoundedLse natural = Round(lse, LseBase::kE);
    const long double off =
        (static_cast<long double>(score) - natural.lse) + lse.low - natural.rest;
    ASSERT_LE(std::fabs(static_cast<double>(off)), 1e-6 + std::fabs(natural.rest) * 1e-7) << score;
    const RoundedLse binary = Round(lse, LseBase::k2);
    const WideLse back = NaturalLse(binary, LseBase::k2);
    const double lost = Difference(back, lse);
    ASSERT_LE(std::fabs(lost), 1e-5 + std::fabs(binary.rest) * 1e-7) << score << " in base 2";
  }
}

TEST(WideLseTest, BaseTwoIsTheProductWithLog2OfE) {
  for (const float score : {3.0f, -1000.5f, -1e9f, 1e15f}) {
    const RoundedLse rounded = Round({score, 0}, LseBase::k2);
    const long double exact = score * kLog2e;
    const auto rest = static_cast<double>(exact - rounded.lse);
    EXPECT_NEAR(rounded.rest, rest, std::fabs(rest) * 1e-6 + std::fabs(score) * 1e-18) << score;
  }
}

TEST(WideLseTest, WhatFp32DoesNotHoldIsNan) {
  EXPECT_TRUE(std::isnan(Round({3e38, 0}, LseBase::k2).lse));
  EXPECT_EQ(Round({3e38, 0}, LseBase::k2).rest, 0);
  EXPECT_TRUE(std::isnan(Round({4e38, 0}, LseBase::kE).lse));
}

TEST(WideLseTest, ARowOfEqualScoresHasTheLogarithmOfItsKeysAsRest) {
  for (const bool base_2 : {false, true}) {
    for (const float score : {-1e9f, 7e6f, 2.0f}) {
      FinishRule rule;
      rule.lse_base_2 = base_2;
      rule.lse_rest = true;
      const RowDivision by = DivisionOf({score, 300}, rule);
      const WideLse lse = NaturalLse({by.lse, by.lse_rest}, base_2 ? LseBase::k2 : LseBase::kE);
      EXPECT_NEAR(Difference(lse, {score, 0}), std::log(300.0), 2e-6) << score << " " << base_2;
      rule.lse_rest = false;
      EXPECT_EQ(DivisionOf({score, 300}, rule).lse, by.lse) << "asking for it changes no bit";
    }
  }
}

TEST(WideLseTest, CoarseIsWhatIsFiniteAndLarge) {
  for (const float lse : {65536.0f, -65536.0f, -1e9f, 3e38f}) EXPECT_TRUE(IsCoarse(lse)) << lse;
  for (const float lse : {0.0f, 65535.9f, -INFINITY, INFINITY, NAN}) {
    EXPECT_FALSE(IsCoarse(lse)) << lse;
  }
}

}  // namespace
}  // namespace annulus
