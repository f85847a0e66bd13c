#include "attention/numerics/merge_partials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/error.h"
#include "tests/seed.h"

namespace annulus {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A partial with its memory.
struct Part {
  int64_t rows = 0, heads = 0, dim = 0;
  std::vector<float> out, lse, rest;
  LseBase base = LseBase::kE;
  LseLayout layout = LseLayout::kRowsHeads;

  FinishedPartial View() const {
    FinishedPartial view;
    view.out_shape = {rows, heads, dim};
    view.lse_shape = layout == LseLayout::kRowsHeads ? std::vector<int64_t>{rows, heads}
                                                     : std::vector<int64_t>{heads, rows};
    if (!rest.empty()) view.rest_shape = view.lse_shape;
    view.out = out;
    view.lse = lse;
    view.rest = rest;
    view.base = base;
    view.layout = layout;
    return view;
  }
};

// Outputs are from 1 to 2, or of either sign, so that several parts may cancel.
Part RandomPart(int64_t rows, int64_t heads, int64_t dim, float largest_lse, std::mt19937* random,
                bool is_signed = false) {
  std::uniform_real_distribution<float> lse(-largest_lse, largest_lse),
      value(is_signed ? -2.0f : 1.0f, 2.0f);
  Part part = {rows, heads, dim, {}, {}, {}};
  for (int64_t i = 0; i < rows * heads * dim; ++i) part.out.push_back(value(*random));
  for (int64_t i = 0; i < rows * heads; ++i) part.lse.push_back(lse(*random));
  return part;
}

Part Identity(int64_t rows, int64_t heads, int64_t dim) {
  Part part = {rows, heads, dim, {}, {}, {}};
  part.out.assign(rows * heads * dim, 0.0f);
  part.lse.assign(rows * heads, -kInfinity);
  return part;
}

Part Merged(const std::vector<Part>& parts, LseBase base = LseBase::kE,
            LseLayout layout = LseLayout::kRowsHeads) {
  std::vector<FinishedPartial> views;
  for (const Part& part : parts) views.push_back(part.View());
  const absl::Status checked = CheckPartials(views);
  EXPECT_TRUE(checked.ok()) << checked;
  MergedPartial merged = MergePartials(views, base, layout);
  return {parts[0].rows, parts[0].heads, parts[0].dim, merged.out,
          merged.lse,    merged.rest,    base,         layout};
}

int64_t UlpsApart(float a, float b) {
  int32_t x, y;
  std::memcpy(&x, &a, sizeof(x));
  std::memcpy(&y, &b, sizeof(y));
  return std::abs(static_cast<int64_t>(x) - y);
}

// Repeatedly joins 2 to 4 of the remaining parts in random order, until one is left.
Part MergeAtRandom(std::vector<Part> parts, std::mt19937* random) {
  while (parts.size() > 1) {
    std::shuffle(parts.begin(), parts.end(), *random);
    const size_t count = std::min<size_t>(parts.size(), 2 + (*random)() % 3);
    const Part joined = Merged({parts.end() - static_cast<int64_t>(count), parts.end()});
    parts.resize(parts.size() - count);
    parts.push_back(joined);
  }
  return parts[0];
}

// For each output: the parts' magnitudes by their weights. Equal to the output if nothing cancels.
std::vector<float> Magnitudes(const std::vector<Part>& parts, const Part& merged) {
  std::vector<float> magnitudes(merged.out.size());
  for (size_t i = 0; i < magnitudes.size(); ++i) {
    const size_t slot = i / static_cast<size_t>(merged.dim);
    double magnitude = 0;
    for (const Part& part : parts) {
      magnitude += std::exp(static_cast<double>(part.lse[slot]) - merged.lse[slot]) *
                   std::abs(static_cast<double>(part.out[i]));
    }
    magnitudes[i] = static_cast<float>(magnitude);
  }
  return magnitudes;
}

float UlpOf(float value) { return std::nextafter(value, kInfinity) - value; }

void ExpectAnyOrderWithinEightUlp(float largest_lse, bool is_signed) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << SeedTrace(seed) << ", LSE up to " << largest_lse
                                  << (is_signed ? ", signed" : ""));
  std::mt19937 random(seed);
  std::vector<Part> parts;
  for (int i = 0; i < 12; ++i) {
    parts.push_back(RandomPart(2, 2, 3, largest_lse, &random, is_signed));
  }
  parts.push_back(Identity(2, 2, 3));
  const Part expected = Merged(parts);
  const std::vector<float> magnitudes = Magnitudes(parts, expected);
  for (int trial = 0; trial < 1000; ++trial) {
    const Part other = MergeAtRandom(parts, &random);
    for (size_t i = 0; i < other.out.size(); ++i) {
      ASSERT_LE(std::abs(other.out[i] - expected.out[i]), 8 * UlpOf(magnitudes[i])) << trial;
    }
    for (size_t i = 0; i < other.lse.size(); ++i) {
      ASSERT_LE(UlpsApart(other.lse[i], expected.lse[i]), 8) << trial;
    }
  }
}

TEST(MergePartialsTest, AnyOrderAndGroupingAgreesWithinEightUlp) {
  // 1e4: the error of an fp32 LSE alone would exceed its weights' ulps.
  for (const float largest : {1.0f, 40.0f, 1e4f}) {
    for (const bool is_signed : {false, true}) ExpectAnyOrderWithinEightUlp(largest, is_signed);
  }
}

TEST(MergePartialsTest, AgreesWithTheFormula) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937 random(seed);
  std::vector<Part> parts;
  for (int i = 0; i < 5; ++i) parts.push_back(RandomPart(7, 3, 4, 6.0f, &random));
  const Part merged = Merged(parts);
  for (int64_t slot = 0; slot < 21; ++slot) {
    long double weight = 0, sums[4] = {};
    for (const Part& part : parts) {
      const long double own = std::exp(static_cast<long double>(part.lse[slot]));
      weight += own;
      for (int d = 0; d < 4; ++d) sums[d] += own * part.out[slot * 4 + d];
    }
    EXPECT_FLOAT_EQ(merged.lse[slot], static_cast<float>(std::log(weight)));
    for (int d = 0; d < 4; ++d) {
      EXPECT_FLOAT_EQ(merged.out[slot * 4 + d], static_cast<float>(sums[d] / weight));
    }
  }
}

TEST(MergePartialsTest, OnePartialComesBackBitForBit) {
  std::mt19937 random(3);
  const Part part = RandomPart(5, 2, 3, 40.0f, &random);
  const Part merged = Merged({part, Identity(5, 2, 3)});
  EXPECT_EQ(merged.out, part.out);
  EXPECT_EQ(merged.lse, part.lse);
}

TEST(MergePartialsTest, BasesAndLayoutsMix) {
  std::mt19937 random(4);
  const Part a = RandomPart(3, 2, 2, 9.0f, &random), b = RandomPart(3, 2, 2, 9.0f, &random);
  Part turned = b;
  turned.base = LseBase::k2;
  turned.layout = LseLayout::kHeadsRows;
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t head = 0; head < 2; ++head) {
      turned.lse[head * 3 + row] =
          static_cast<float>(b.lse[row * 2 + head] * 1.4426950408889634073599246810019);
    }
  }
  const Part expected = Merged({a, b});
  const Part merged = Merged({a, turned}, LseBase::k2, LseLayout::kHeadsRows);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_NEAR(merged.lse[head * 3 + row] * std::log(2.0), expected.lse[row * 2 + head], 3e-6);
      for (int64_t i = (row * 2 + head) * 2, end = i + 2; i < end; ++i) {
        EXPECT_NEAR(merged.out[i], expected.out[i], 3e-6);
      }
    }
  }
}

TEST(MergePartialsTest, OnlyIdentitiesMakeTheIdentity) {
  Part one = Identity(1, 1, 2);
  one.out = {kNan, -kInfinity};  // Never read.
  const Part merged = Merged({one, Identity(1, 1, 2)});
  EXPECT_EQ(merged.out, std::vector<float>(2, 0.0f));
  EXPECT_EQ(merged.lse[0], -kInfinity);
  EXPECT_EQ(merged.rest[0], 0.0f);
}

TEST(MergePartialsTest, ANumberThatIsNoneStaysInItsRowAndHead) {
  Part a = {2, 2, 1, {1, kNan, kInfinity, 4}, {0, 0, 0, -kInfinity}, {}};
  Part b = {2, 2, 1, {3, 2, 2, 6}, {0, 0, 0, 0}, {}};
  const Part merged = Merged({a, b});
  EXPECT_EQ(merged.out[0], 2.0f);
  EXPECT_TRUE(std::isnan(merged.out[1]));
  EXPECT_EQ(merged.out[2], kInfinity);
  EXPECT_EQ(merged.out[3], 6.0f);  // a has no visible key here.
}

// −inf would mean that no key was visible.
TEST(MergePartialsTest, AnLseThatFp32DoesNotHoldIsNaN) {
  for (const float lse : {3e38f, -3e38f}) {
    const Part part = {1, 1, 1, {5}, {lse}, {}};
    EXPECT_EQ(Merged({part}).lse[0], lse);
    EXPECT_TRUE(std::isnan(Merged({part}, LseBase::k2).lse[0]));
    EXPECT_EQ(Merged({part}, LseBase::k2).out[0], 5.0f);
    const Part twice = {1, 1, 1, {5}, {lse}, {lse}};
    EXPECT_TRUE(std::isnan(Merged({twice}).lse[0]));
  }
}

// Partials of keys that a finite number masks: 30 keys and 10, all with score −1e9.
TEST(MergePartialsTest, PartialsOfACoarseLseWeighByTheirRests) {
  for (const float score : {-1e9f, -3.4028235e38f, 1e7f}) {
    const float a = score + std::log(30.0f), b = score + std::log(10.0f);
    const auto rest = [&](float lse, double keys) {
      return static_cast<float>((double{score} - lse) + std::log(keys));
    };
    const Part first = {1, 1, 1, {2}, {a}, {rest(a, 30)}};
    const Part second = {1, 1, 1, {6}, {b}, {rest(b, 10)}};
    const Part merged = Merged({first, second});
    EXPECT_NEAR(merged.out[0], 3, 1e-6);
    EXPECT_NEAR((double{merged.lse[0]} - score) + merged.rest[0], std::log(40.0), 1e-6);
  }
}

TEST(MergePartialsTest, ACoarseLseWithoutItsRestIsRefusedWhereItCounts) {
  const Part coarse = {1, 2, 1, {2, 2}, {1, -1e9f}, {}};
  Part other = {1, 2, 1, {6, 6}, {1, -1e9f}, {0, 3}};
  const auto check = [&] {
    const std::vector<FinishedPartial> views = {other.View(), coarse.View()};
    return CheckPartials(views);
  };
  EXPECT_EQ(DetailOf(check()).reason, "LSE_TOO_COARSE");
  EXPECT_EQ(DetailOf(check()).fields[0].field, "partials[1].lse.values[1]");
  for (const float lse : {5.0f, -2e9f, -kInfinity}) {  // One of the two parts has the whole row.
    other.lse[1] = lse;
    EXPECT_TRUE(check().ok()) << lse << ": " << check();
  }
}

TEST(MergePartialsTest, LseThatIsNoneIsCorruptOrEmpty) {
  for (const float lse : {kNan, kInfinity}) {
    const Part bad = {1, 1, 1, {kNan}, {lse}, {}};
    const Part good = {1, 1, 1, {5}, {2}, {}};
    std::vector<FinishedPartial> views = {good.View(), bad.View()};
    const absl::Status refused = CheckPartials(views);
    EXPECT_EQ(DetailOf(refused).reason, "CORRUPT_PARTIAL");
    EXPECT_EQ(DetailOf(refused).fields[0].field, "partials[1].lse.values[0]");
    views[1].nonfinite_is_empty = true;
    ASSERT_TRUE(CheckPartials(views).ok());
    const MergedPartial merged = MergePartials(views, LseBase::kE, LseLayout::kRowsHeads);
    EXPECT_EQ(merged.out[0], 5.0f);
    EXPECT_EQ(merged.lse[0], 2.0f);
  }
}

TEST(MergePartialsTest, RefusesWhatDoesNotFit) {
  const Part good = {2, 3, 2, std::vector<float>(12), std::vector<float>(6), {}};
  const auto reason = [&](void (*damage)(FinishedPartial*)) {
    std::vector<FinishedPartial> views = {good.View(), good.View()};
    damage(&views[1]);
    return DetailOf(CheckPartials(views)).reason;
  };
  EXPECT_EQ(reason([](FinishedPartial* p) { p->out_shape = {3, 2, 2}; }), "SHAPE_MISMATCH");
  EXPECT_EQ(reason([](FinishedPartial* p) { p->lse_shape = {3, 2}; }), "SHAPE_MISMATCH");
  EXPECT_EQ(reason([](FinishedPartial* p) { p->layout = LseLayout::kHeadsRows; }),
            "SHAPE_MISMATCH");
  EXPECT_EQ(reason([](FinishedPartial* p) { p->rest_shape = {6}; }), "SHAPE_MISMATCH");
  EXPECT_EQ(reason([](FinishedPartial* p) { p->out.remove_suffix(1); }), "TENSOR_BYTES_MISMATCH");
  EXPECT_EQ(reason([](FinishedPartial* p) { p->lse.remove_suffix(1); }), "TENSOR_BYTES_MISMATCH");
  EXPECT_EQ(DetailOf(CheckPartials({})).reason, "MISSING_TENSOR");
  EXPECT_EQ(DetailOf(CheckPartials(std::vector<FinishedPartial>(257, good.View()))).reason,
            "LIMIT_EXCEEDED");
}

TEST(MergePartialsTest, HostileShapesOverflowNothing) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{huge, huge, huge},
                                            {-1, 2, 2},
                                            {2, -3, 2},
                                            {int64_t{1} << 32, 1 << 16, 1 << 16},
                                            {1, 1},
                                            {0, 0, 0},
                                            {huge, 0, 1},
                                            {1, 1, 0}}) {
    FinishedPartial view;
    view.out_shape = shape;
    view.lse_shape = {shape[0], shape[1]};
    const std::string reason = DetailOf(CheckPartials({view})).reason;
    EXPECT_TRUE(reason == "LIMIT_EXCEEDED" || reason == "DIM_OVERFLOW" ||
                reason == "SHAPE_MISMATCH")
        << reason;
  }
}

TEST(MergePartialsTest, NoRowsAreNoError) {
  const Part merged = Merged({Identity(0, 2, 3), Identity(0, 2, 3)});
  EXPECT_TRUE(merged.out.empty());
  EXPECT_TRUE(merged.lse.empty());
}

}  // namespace
}  // namespace annulus
