#include "attention/numerics/partial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace annulus {
namespace {

constexpr size_t kDim = 5;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Partial {
  RowState state;
  std::vector<float> sum = std::vector<float>(kDim, 0.0f);
};

void MergeInto(Partial& a, const Partial& b) {
  Merge(a.state, absl::MakeSpan(a.sum), b.state, absl::MakeConstSpan(b.sum));
}

// A partial of a few keys with random scores. Values are between 1 and 2, so that nothing cancels.
Partial RandomPartial(std::mt19937& random) {
  std::uniform_real_distribution<float> score(-40.0f, 40.0f), value(1.0f, 2.0f);
  Partial partial;
  partial.state = {score(random), 1.0f + value(random)};
  for (float& x : partial.sum) x = partial.state.weight * value(random);
  return partial;
}

std::vector<float> Finished(const Partial& partial, float* lse) {
  std::vector<float> out(kDim);
  *lse = Finish(partial.state, partial.sum, absl::MakeSpan(out));
  return out;
}

int64_t UlpsApart(float a, float b) {
  int32_t x, y;
  std::memcpy(&x, &a, sizeof(x));
  std::memcpy(&y, &b, sizeof(y));
  return std::abs(static_cast<int64_t>(x) - y);
}

// Repeatedly merges two of the remaining partials in random order, until one is left.
Partial MergeAtRandom(std::vector<Partial> parts, std::mt19937& random) {
  while (parts.size() > 1) {
    std::shuffle(parts.begin(), parts.end(), random);
    MergeInto(parts[parts.size() - 2], parts.back());
    parts.pop_back();
  }
  return parts[0];
}

TEST(PartialTest, AnyOrderAndGroupingAgreesWithinEightUlp) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::vector<Partial> parts;
  for (int i = 0; i < 16; ++i) parts.push_back(RandomPartial(random));
  parts.push_back(Partial());
  float lse = 0;
  const std::vector<float> expected = Finished(MergeAtRandom(parts, random), &lse);
  for (int trial = 0; trial < 1000; ++trial) {
    float other = 0;
    const std::vector<float> out = Finished(MergeAtRandom(parts, random), &other);
    ASSERT_LE(UlpsApart(lse, other), 8);
    for (size_t i = 0; i < kDim; ++i) ASSERT_LE(UlpsApart(out[i], expected[i]), 8);
  }
}

TEST(PartialTest, MergeAgreesWithDoubles) {
  constexpr uint32_t kSeed = 6;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int trial = 0; trial < 1000; ++trial) {
    Partial a = RandomPartial(random);
    const Partial b = RandomPartial(random), before = a;
    MergeInto(a, b);
    const double top = std::max(before.state.max, b.state.max);
    const double wa = std::exp(before.state.max - top), wb = std::exp(b.state.max - top);
    EXPECT_EQ(a.state.max, static_cast<float>(top));
    const double weight = wa * before.state.weight + wb * b.state.weight;
    EXPECT_NEAR(a.state.weight, weight, 4e-7 * weight);
    for (size_t i = 0; i < kDim; ++i) {
      const double sum = wa * before.sum[i] + wb * b.sum[i];
      EXPECT_NEAR(a.sum[i], sum, 4e-7 * sum);
    }
  }
}

TEST(PartialTest, TheIdentityChangesNoBitOnEitherSide) {
  std::mt19937 random(7);
  const Partial some = RandomPartial(random);
  Partial nothing;
  nothing.sum.assign(kDim, std::nanf(""));  // This content is never read.
  Partial left = some;
  MergeInto(left, nothing);
  Partial right = nothing;
  MergeInto(right, some);
  for (const Partial& merged : {left, right}) {
    EXPECT_EQ(merged.state.max, some.state.max);
    EXPECT_EQ(merged.state.weight, some.state.weight);
    EXPECT_EQ(merged.sum, some.sum);
  }
  Partial both;
  MergeInto(both, nothing);
  EXPECT_EQ(both.state.max, -kInfinity);
  EXPECT_EQ(both.state.weight, 0.0f);
}

TEST(PartialTest, FinishOfNothingIsZeroAndMinusInfinity) {
  Partial nothing;
  nothing.sum.assign(kDim, std::nanf(""));
  float lse = 0;
  EXPECT_EQ(Finished(nothing, &lse), std::vector<float>(kDim, 0.0f));
  EXPECT_EQ(lse, -kInfinity);
}

TEST(PartialTest, FinishDividesAndHasNoNegativeZero) {
  Partial partial;
  partial.state = {3.0f, 4.0f};
  partial.sum = {8.0f, -0.0f, -4.0f, 1.0f, 0.0f};
  float lse = 0;
  const std::vector<float> out = Finished(partial, &lse);
  EXPECT_EQ(out, (std::vector<float>{2.0f, 0.0f, -1.0f, 0.25f, 0.0f}));
  EXPECT_FALSE(std::signbit(out[1]));
  EXPECT_FLOAT_EQ(lse, 3.0f + std::log(4.0f));
}

TEST(PartialTest, ASinkIsOneMoreScoreWithoutAValue) {
  Partial partial;
  partial.state = {3.0f, 4.0f};
  partial.sum = {8.0f, -0.0f, -4.0f, 1.0f, 0.0f};
  std::vector<float> out(kDim);
  for (const float sink : {-200.0f, 1.0f, 3.0f, 5.0f, 200.0f}) {
    FinishRule rule;
    rule.sink = sink;
    const float lse = Finish(partial.state, partial.sum, absl::MakeSpan(out), rule);
    const double all = 4 * std::exp(3.0) + std::exp(double{sink});
    EXPECT_NEAR(lse, std::log(all), 1e-6 * lse);
    for (size_t i = 0; i < kDim; ++i) {
      const double exact = partial.sum[i] * std::exp(3.0) / all;
      EXPECT_NEAR(out[i], exact, 4e-7 * std::fabs(exact) + 1e-40) << sink;
      EXPECT_FALSE(std::signbit(out[i]) && out[i] == 0);
    }
  }
}

// Also if every score is below the range of fp32: beside a sink their weight is 0.
TEST(PartialTest, ASinkAloneIsTheLse) {
  FinishRule rule;
  rule.sink = -7.5f;
  std::vector<float> out(kDim, 1.0f), sum(kDim, std::nanf(""));
  EXPECT_EQ(Finish(RowState(), sum, absl::MakeSpan(out), rule), -7.5f);
  EXPECT_EQ(out, std::vector<float>(kDim, 0.0f));
  const RowState lost{std::numeric_limits<float>::lowest(), 0};
  sum.assign(kDim, 0.0f);
  EXPECT_EQ(Finish(lost, sum, absl::MakeSpan(out), rule), -7.5f);
  EXPECT_EQ(out, std::vector<float>(kDim, 0.0f));
}

TEST(PartialTest, BaseTwoAndDropoutChangeTheirOwnOutputOnly) {
  Partial partial;
  partial.state = {3.0f, 4.0f};
  partial.sum = {8.0f, -0.0f, -4.0f, 1.0f, 0.0f};
  std::vector<float> out(kDim);
  FinishRule rule;
  rule.kept = 0.5f;
  rule.lse_base_2 = true;
  for (const bool sink : {false, true}) {
    if (sink) rule.sink = 3.0f;
    const double weight = sink ? 5 : 4;
    const float lse = Finish(partial.state, partial.sum, absl::MakeSpan(out), rule);
    EXPECT_FLOAT_EQ(lse, static_cast<float>((3 + std::log(weight)) / std::log(2.0)));
    EXPECT_FLOAT_EQ(out[0], static_cast<float>(8 / (weight / 2)));
  }
  EXPECT_FLOAT_EQ(Finish(RowState(), partial.sum, absl::MakeSpan(out), rule),
                  static_cast<float>(3 / std::log(2.0)));
  rule.sink.reset();
  EXPECT_EQ(Finish(RowState(), partial.sum, absl::MakeSpan(out), rule), -kInfinity);
}

// Otherwise it would look as if no key was visible.
TEST(PartialTest, AnLseBelowTheRangeOfFp32IsLost) {
  std::vector<float> out(kDim), sum(kDim, 2.0f);
  FinishRule rule;
  const RowState low{-3e38f, 1.0f};
  EXPECT_EQ(Finish(low, sum, absl::MakeSpan(out), rule), -3e38f);
  rule.lse_base_2 = true;
  EXPECT_TRUE(std::isnan(Finish(low, sum, absl::MakeSpan(out), rule)));
  EXPECT_EQ(out, sum);
  rule.sink = -3e38f;
  EXPECT_TRUE(std::isnan(Finish(RowState(), sum, absl::MakeSpan(out), rule)));
}

TEST(PartialTest, TheLargestScoreIsThatOfTheStateUnlessItIsLost) {
  EXPECT_EQ(MaxLogit({-2.5f, 1.5f}), -2.5f);
  EXPECT_EQ(MaxLogit(RowState()), -kInfinity);
  EXPECT_TRUE(std::isnan(MaxLogit({std::numeric_limits<float>::lowest(), 0})));
  EXPECT_TRUE(std::isnan(MaxLogit({1.0f, std::nanf("")})));
}

TEST(PartialTest, FarApartMaximaNeverOverflow) {
  Partial a, b;
  a.state = {-1e30f, 1.0f};
  a.sum.assign(kDim, 1.0f);
  b.state = {1e30f, 2.0f};
  b.sum.assign(kDim, 6.0f);
  MergeInto(a, b);
  float lse = 0;
  EXPECT_EQ(Finished(a, &lse), std::vector<float>(kDim, 3.0f));
  EXPECT_EQ(lse, 1e30f);
}

}  // namespace
}  // namespace annulus
