#include "attention/numerics/error_budget.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Eighth(double) { return 0.125; }

HeadErrors Errors(double exact, double naive, double answer) {
  HeadErrors errors;
  errors.AddOutput(exact, naive, answer);
  return errors;
}

TEST(ErrorBudgetTest, TheLargestErrorsCount) {
  HeadErrors errors;
  errors.AddOutput(1, 1.5, 1.25);
  errors.AddOutput(-4, -4.125, -3);
  EXPECT_EQ(errors.answer(), 1);
  EXPECT_EQ(errors.naive(), 0.5);
  EXPECT_EQ(errors.largest(), 4);
}

TEST(ErrorBudgetTest, NanIsRightAgainstNanAndWrongAgainstNumbers) {
  EXPECT_EQ(Errors(kNan, kNan, kNan).answer(), 0);
  EXPECT_EQ(Errors(kNan, kNan, 1).answer(), kInfinity);
  EXPECT_EQ(Errors(1, 1, kNan).answer(), kInfinity);
  EXPECT_EQ(Errors(kInfinity, kInfinity, kInfinity).answer(), 0);
  EXPECT_EQ(Errors(kInfinity, kInfinity, 3).answer(), kInfinity);
  EXPECT_EQ(Errors(1e39, kInfinity, kNan).answer(), 0);  // Above the range of fp32.
  // None of them widens the budget.
  for (const HeadErrors& errors : {Errors(kNan, kNan, kNan), Errors(kInfinity, kInfinity, 1)}) {
    EXPECT_EQ(errors.naive(), 0);
    EXPECT_EQ(errors.largest(), 0);
  }
}

TEST(ErrorBudgetTest, LseIsJudgedByItsMagnitudeAndMinusInfinityExactly) {
  const auto part = [](double exact, double answer) {
    HeadErrors errors;
    errors.AddLse(exact, exact, answer, {LseTolerance(true, false)});
    return errors.lse();
  };
  EXPECT_NEAR(part(100, 100.0005), 0.5, 1e-6);
  EXPECT_NEAR(part(0.5, 0.50002), 2, 1e-6);
  EXPECT_EQ(part(-kInfinity, -kInfinity), 0);
  EXPECT_EQ(part(-kInfinity, -1e30), kInfinity);
  EXPECT_EQ(part(-kInfinity, kNan), kInfinity);
  EXPECT_EQ(part(3, -kInfinity), kInfinity);
  EXPECT_EQ(part(kNan, kNan), 0);
  EXPECT_EQ(part(-4.3e38, kNan), 0);  // Above the range of fp32, in base 2.
  EXPECT_EQ(part(-3.3e38, kNan), kInfinity);
}

TEST(ErrorBudgetTest, AnLseMayBeOffAsMuchAsScoresAreAndInItsBase) {
  const auto part = [](double exact, double answer, const LseAllowance& allowance) {
    HeadErrors errors;
    errors.AddLse(exact, exact, answer, allowance);
    return errors.lse();
  };
  EXPECT_NEAR(part(0.5, 0.50002, {1e-5, 2}), 1, 1e-6);
  EXPECT_NEAR(part(4, 4.00008, {1e-5, 2}), 2, 1e-6);
  EXPECT_NEAR(part(4, 4.00008, {1e-5, 2, 8e-5}), 1, 1e-6);
  EXPECT_NEAR(part(4, 4.00008, {1e-5, 2, 2e-5}), 2, 1e-6);
  EXPECT_NEAR(part(4, 4.00008, {1e-5, 2, kInfinity}), 2, 1e-6);
  EXPECT_EQ(part(-kInfinity, -1e30, {1e-5, 1, 1}), kInfinity);
}

TEST(ErrorBudgetTest, SmallSamplesShareTheLargestNaiveErrorByTheirScales) {
  std::vector<HeadErrors> heads = {Errors(1, 1.25, 1), Errors(1, 2, 1)};
  EXPECT_EQ(OutputBudgets(heads, 4096, Eighth), (std::vector<double>{0.5625, 2.0625}));
  const double shared = 2 * (1 + 0.75 * 0.125) + 0.0625;
  EXPECT_EQ(OutputBudgets(heads, 4095, Eighth), (std::vector<double>{shared, shared}));
  EXPECT_TRUE(OutputBudgets({}, 0, Eighth).empty());
  // Limited by the tolerance for small samples and by the given scale, but never less than the own
  // error.
  heads[0].AllowOfFew(0.5);
  heads[1].AllowOfFew(4);
  const double own = 0.25 + 0.75 * 0.125;
  EXPECT_EQ(OutputBudgets(heads, 4095, Eighth),
            (std::vector<double>{2 * own + 0.0625 + 0.5, 2 * own * 8 + 0.0625 + 4}));
  for (const double scale : {0.5, kInfinity, 2.0, kNan}) heads[0].AddScale(scale);
  heads[1].AddScale(8);
  EXPECT_EQ(OutputBudgets(heads, 4095, Eighth),
            (std::vector<double>{2 * own + 0.0625 + 0.5, 2 * own * 4 + 0.0625 + 4}));
  heads[1].AddScale(64);
  EXPECT_EQ(OutputBudgets(heads, 4095, Eighth)[1], 2 * own * 32 + 0.0625 + 4);
}

TEST(ErrorBudgetTest, AHeadOfSmallNumbersHasASmallBudgetAlsoInASmallSample) {
  std::vector<HeadErrors> heads = {Errors(100, 100.5, 100), Errors(0.5, 0.5, 0)};
  const auto tiny = [](double magnitude) { return magnitude * 0x1p-8; };
  EXPECT_LT(OutputBudgets(heads, 16, tiny)[1], heads[1].answer());
}

TEST(ErrorBudgetTest, NumbersThatAreFlushedAreNoError) {
  const std::vector<HeadErrors> heads = {Errors(1, 1, 1), Errors(0x1p-125, 0x1p-125, 0)};
  const auto tiny = [](double magnitude) { return magnitude * 0x1p-24; };
  for (const int64_t outputs : {16, 4096})
    EXPECT_GT(OutputBudgets(heads, outputs, tiny)[1], heads[1].answer());
}

TEST(ErrorBudgetTest, WhatIsAllowedBesidesIsTheLargestThatIsFinite) {
  HeadErrors errors = Errors(1, 1.25, 1);
  for (const double more : {0.25, 3.0, 1.0, kInfinity, kNan}) errors.Allow(more);
  EXPECT_EQ(OutputBudgets({errors}, 4096, Eighth), std::vector<double>{3.5625});
}

TEST(ErrorBudgetTest, WhatIsAllowedOfFewIsOfFewerThan4096) {
  HeadErrors errors = Errors(1, 1.25, 1);
  for (const double more : {0.25, 3.0, 1.0, kInfinity, kNan}) errors.AllowOfFew(more);
  const double naive = 0.25 + 0.75 * 0.125;
  EXPECT_EQ(OutputBudgets({errors}, 4095, Eighth), std::vector<double>{2 * naive + 0.0625 + 3});
  EXPECT_EQ(OutputBudgets({errors}, 4096, Eighth), std::vector<double>{0.5625});
  errors.Allow(2);
  EXPECT_EQ(OutputBudgets({errors}, 4095, Eighth), std::vector<double>{2 * naive + 0.0625 + 5});
}

}  // namespace
}  // namespace annulus
