// Single steps of the paths that multiply bf16 numbers: scores to weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/worker/kernel/amx_or_emulation.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kDim = 32;
constexpr int kRows = 16;  // The number of rows of an AMX tile.

uint16_t Bf16(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}
float FloatOf(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(bits));
  return number;
}

class Bf16WeightsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    isa_ = GetParam() == "amx"          ? AmxOrEmulation()
           : SelectIsa(GetParam()).ok() ? *SelectIsa(GetParam())
                                        : nullptr;
    if (isa_ == nullptr) GTEST_SKIP() << "this CPU lacks " << GetParam();
    tile_.rows = 1;
    tile_.head_dim = tile_.value_dim = kDim;
    tile_.scores = scores_;
    tile_.sums = sums_;
    tile_.sum_stride = isa_->panel;
    tile_.slack = isa_->slack;
    tile_.max = max_;
    tile_.weight = weight_;
    tile_.alpha = alpha_;
    tile_.group_begin = begin_;
    tile_.group_end = end_;
    std::fill_n(alpha_, kMostTileRows, 1.0f);
    SeeTo(kKeyBlock);
  }

  void SeeTo(int keys) { std::fill_n(end_, kMostTileRows, static_cast<int16_t>(keys)); }

  // The weights of a row whose maximum so far is `max`: [256].
  const float* Weigh(const std::vector<float>& scores, float max) {
    std::copy(scores.begin(), scores.end(), scores_);
    max_[0] = max;
    weight_[0] = 0;
    isa_->softmax(tile_);
    return scores_;
  }

  // Packs values of `keys` keys; that of column c is key % 11 + c.
  void PackValues(int keys) {
    std::vector<uint16_t> rows;
    for (int key = 0; key < keys; ++key)
      for (int c = 0; c < kDim; ++c) rows.push_back(Bf16(static_cast<float>(key % 11 + c)));
    ElementRows from;
    from.dtype = DataType::kBf16;
    from.first = reinterpret_cast<const std::byte*>(rows.data());
    from.stride = kDim * sizeof(uint16_t);
    const std::vector<uint8_t> present(kKeyBlock, 1);
    ASSERT_LE(PackedValueFloats(*isa_, kDim), static_cast<int64_t>(std::size(values_)));
    EXPECT_TRUE(isa_->pack_values(from, present.data(), keys, kDim, values_));
    tile_.values = values_;
    SeeTo(keys);
  }

  const TileIsa* isa_ = nullptr;
  TileBlock tile_;
  alignas(64) float scores_[kRows * kKeyBlock] = {}, sums_[kRows * 64] = {};
  alignas(64) float values_[kKeyBlock * 64] = {};
  float max_[kMostTileRows] = {}, weight_[kMostTileRows] = {}, alpha_[kMostTileRows] = {};
  int16_t begin_[kMostTileRows] = {}, end_[kMostTileRows] = {};
};

double WorstOf(const float* weights, const std::vector<float>& scores, double max) {
  double worst = 0;
  for (int k = 0; k < kKeyBlock; ++k) {
    const double exact = std::exp(double{scores[k]} - max);
    worst = std::max(worst, std::fabs(weights[k] / exact - 1));
  }
  return worst;
}

// Scores from 0 down, evenly over `octaves` powers of two.
std::vector<float> Falling(double octaves, float top) {
  std::vector<float> scores;
  for (int k = 0; k < kKeyBlock; ++k)
    scores.push_back(top - static_cast<float>((k + 0.5) / kKeyBlock * octaves * std::log(2.0)));
  return scores;
}

TEST_P(Bf16WeightsTest, AreNearlyExactAndTheirSumIsMoreSo) {
  for (const int octaves : {1, 4, 16}) {
    const std::vector<float> scores = Falling(octaves, 3);
    EXPECT_LT(WorstOf(Weigh(scores, 3), scores, 3), 4e-6);
    double exact = 0;
    for (const float score : scores) exact += std::exp(double{score} - 3);
    EXPECT_LT(std::fabs(weight_[0] / exact - 1), 4e-7) << octaves;
    EXPECT_EQ(Weigh(std::vector<float>(kKeyBlock, 0.0f), 0)[7], 1);
  }
}

// A row may see no later keys. With one key its weight is 1, whatever its score.
TEST_P(Bf16WeightsTest, OfTheFirstBlockAreExact) {
  for (const float top : {0.0f, 3.3f, -77.7f, 1e4f, 1e30f}) {
    std::vector<float> scores = Falling(10, std::fabs(top) < 100 ? top : 0);
    scores[9] = top;
    Weigh(scores, -kInfinity);
    EXPECT_EQ(scores_[9], 1) << top;
    if (std::fabs(top) < 100) {
      EXPECT_LT(WorstOf(scores_, scores, top), 1e-5) << top;
    }
  }
}

// Scale, reference and log2(e) in one multiply-add would lose the remainder of the largest score.
TEST_P(Bf16WeightsTest, OfTheMaximumAreExact) {
  for (const float top : {0.3f, 30.1f, 101.8f, -300.8f, 724.1f, 1021.1f, -1500.0f, 1e6f, 1e30f}) {
    const std::vector<float> scores(kKeyBlock, top);
    EXPECT_EQ(Weigh(scores, top)[3], 1) << top;
  }
}

TEST_P(Bf16WeightsTest, OfWhatIsNotFinite) {
  std::vector<float> scores(kKeyBlock, 0.0f);
  scores[2] = -kInfinity;
  scores[3] = std::nanf("");
  const float* weights = Weigh(scores, 1);
  EXPECT_EQ(weights[2], 0);
  EXPECT_TRUE(std::isnan(weights[3]));
  EXPECT_TRUE(std::isnan(weight_[0]));
}

// All numbers are such that no sum is rounded.
TEST_P(Bf16WeightsTest, MeetTheirOwnValues) {
  constexpr int kKeys = 200;
  const auto weight = [](int key) { return static_cast<float>(key % 7) / 8; };
  PackValues(kKeys);
  const auto expect = [&](const std::vector<KeySpan>& spans) {
    for (int c = 0; c < kDim; ++c) {
      float exact = 0;
      for (const KeySpan& span : spans)
        for (int key = span.begin; key < span.end; ++key)
          exact += weight(key) * static_cast<float>(key % 11 + c);
      EXPECT_EQ(sums_[c], exact) << c;
      sums_[c] = 0;
    }
  };
  const auto set = [&] {
    for (int key = 0; key < kKeyBlock; ++key) scores_[key] = key < kKeys ? weight(key) : 0.0f;
  };
  set();
  isa_->accumulate(tile_);
  expect({{0, kKeys}});
  const std::vector<KeySpan> spans = {{3, 20}, {40, 41}, {79, kKeys}};
  set();
  isa_->accumulate_row(tile_, spans.data(), static_cast<int>(spans.size()));
  expect(spans);
}

TEST_P(Bf16WeightsTest, AreRoundedToTheNearest) {
  PackValues(kKeyBlock);
  for (const auto& [weight, rounded] : std::vector<std::array<float, 2>>{
           {1.0f + 0x1.8p-8f, 1 + 0x1p-7f},
           {1.0f + 0x1.ffp-9f, 1},
           {1.0f + 0x1p-8f, 1 + 0x1p-7f},  // A half is rounded away from zero.
           {1.0f + 0x1.8p-7f, 1 + 0x1p-6f},
           {0x1.ffp0f, 2},
           {0, 0}}) {
    for (const int key : {12, 28}) {  // The value in column 0 is 1 or 6.
      std::fill_n(scores_, kKeyBlock, 0.0f);
      std::fill_n(sums_, kDim, 0.0f);
      scores_[key] = weight;
      isa_->accumulate(tile_);
      EXPECT_EQ(sums_[0], rounded * static_cast<float>(key % 11)) << weight << " " << key;
    }
  }
}

// For all bits of NaN, since a bias may contain any.
TEST_P(Bf16WeightsTest, ThatAreNotFiniteStayWhatTheyAre) {
  PackValues(kKeyBlock);
  for (const uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7fff8000u, 0x7fc00000u, 0x7f800000u}) {
    for (const int key : {5, 21}) {
      std::fill_n(scores_, kKeyBlock, 0.0f);
      std::fill_n(sums_, kDim, 0.0f);
      scores_[key] = FloatOf(bits);
      isa_->accumulate(tile_);
      EXPECT_EQ(std::isnan(sums_[1]), bits != 0x7f800000u) << bits << " " << key;
      EXPECT_EQ(sums_[1] == kInfinity, bits == 0x7f800000u) << bits << " " << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, Bf16WeightsTest, testing::Values("amx", "avx512bf16"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
