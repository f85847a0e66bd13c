// Accuracy of soft cap and ALiBi alone, on every path.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/worker/kernel/wide_isa.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const TileIsa*> Isas() {
  std::vector<const TileIsa*> isas = AvailableIsas();
  isas.push_back(&kWideIsa);
  return isas;
}

// The scores of one row, changed.
std::array<float, kKeyBlock> Changed(const TileIsa& isa, std::array<float, kKeyBlock> scores,
                                     const ScoreRule& rule) {
  const int16_t begin = 0, end = kKeyBlock;
  TileBlock tile;
  tile.rows = 1;
  tile.scores = scores.data();
  tile.group_begin = &begin;
  tile.group_end = &end;
  isa.change_scores(tile, rule);
  return scores;
}

ScoreRule CapOf(float cap) {
  ScoreRule rule;
  rule.cap = cap;
  rule.per_cap_high = std::nextafter(1 / cap, 0.0f);
  rule.per_cap_low = static_cast<float>(1 / double{cap} - double{rule.per_cap_high});
  return rule;
}

// Every 61st float from 2^-40 to 16, also negative.
TEST(ChangeScoresTest, TanhIsWithinTwoUlp) {
  for (const TileIsa* isa : Isas()) {
    double worst = 0;
    float at = 0;
    for (float x = std::ldexp(1.0f, -40); x < 16;) {
      std::array<float, kKeyBlock> scores;
      for (int k = 0; k < kKeyBlock; ++k) {
        scores[k] = k % 2 == 0 ? x : -x;
        for (int i = 0; i < 61; ++i) x = std::nextafter(x, kInfinity);
        x *= 1 + 1.0f / 4096;
      }
      const std::array<float, kKeyBlock> out = Changed(*isa, scores, CapOf(1));
      for (int k = 0; k < kKeyBlock; ++k) {
        const double exact = std::tanh(double{scores[k]});
        const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
        if (std::fabs(out[k] - exact) / ulp > worst) at = scores[k];
        worst = std::max(worst, std::fabs(out[k] - exact) / ulp);
      }
    }
    EXPECT_LE(worst, 2) << isa->name << " at " << at;
    RecordProperty(isa->name, std::to_string(worst));
  }
}

TEST(ChangeScoresTest, TheCapHoldsForAnyScore) {
  for (const TileIsa* isa : Isas()) {
    for (const float cap : {1e-30f, 0.37f, 30.0f, 1e30f}) {
      std::array<float, kKeyBlock> scores = {};
      const std::vector<float> some = {0,     -0.0f,  1e-3f,     1e4f,       -1e4f,
                                       3e38f, -3e38f, kInfinity, -kInfinity, std::nanf("")};
      std::copy(some.begin(), some.end(), scores.begin());
      const std::array<float, kKeyBlock> out = Changed(*isa, scores, CapOf(cap));
      for (size_t k = 0; k + 1 < some.size(); ++k) {
        const double exact = cap * std::tanh(double{some[k]} / cap);
        EXPECT_NEAR(out[k], exact, std::fabs(exact) * 3e-7)
            << isa->name << " " << some[k] << " " << cap;
      }
      EXPECT_TRUE(std::isnan(out[some.size() - 1])) << isa->name;
    }
  }
}

TEST(ChangeScoresTest, AlibiIsRoundedOnceAndComesAfterTheCap) {
  std::array<int32_t, kKeyBlock> key;
  std::array<float, kKeyBlock> scores;
  for (int k = 0; k < kKeyBlock; ++k) {
    key[k] = k < 200 ? 7 * k : 60'000'000 + k;
    scores[k] = static_cast<float>(k % 5) - 2;
  }
  const float slope = 0.3f;
  for (const int32_t position : {-900, 500, 60'000'230}) {
    ScoreRule rule;
    rule.slope = &slope;
    rule.position = &position;
    rule.key = key.data();
    ScoreRule both = CapOf(1.5f);
    both.slope = &slope;
    both.position = &position;
    both.key = key.data();
    for (const TileIsa* isa : Isas()) {
      const std::array<float, kKeyBlock> out = Changed(*isa, scores, rule);
      const std::array<float, kKeyBlock> capped = Changed(*isa, scores, both);
      for (int k = 0; k < kKeyBlock; ++k) {
        const double away = double{slope} * std::abs(position - key[k]);
        const double ulp = away * 2.4e-7 + 1e-6;
        EXPECT_NEAR(out[k], scores[k] - away, ulp) << isa->name << " " << k;
        EXPECT_NEAR(capped[k], 1.5 * std::tanh(scores[k] / 1.5) - away, ulp)
            << isa->name << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace annulus
