// Compares the reference of the backward pass with central differences of the forward reference, in
// fp64.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/reference/from_spec.h"
#include "tests/reference/gradient_budget.h"
#include "tests/reference/reference_gradients.h"

namespace annulus::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Σ d_out · out + Σ d_lse · lse. Its gradients are those of a backward pass.
double Loss(const Input& input, const Upstream& up) {
  const Result result = Exact(input);
  double loss = 0;
  for (size_t i = 0; i < result.out.size(); ++i) loss += up.d_out[i] * result.out[i];
  for (size_t i = 0; i < result.lse.size(); ++i) {
    if (!up.d_lse.empty() && result.lse[i] != -kInfinity) loss += up.d_lse[i] * result.lse[i];
  }
  return loss;
}

void ExpectCentralDifferences(Input input, const std::vector<double>& gradient,
                              const std::function<std::vector<double>&(Input&)>& tensor,
                              const Upstream& up) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(gradient.size(), tensor(input).size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    double& at = tensor(input)[i];
    const double value = at;
    at = value + kStep;
    const double above = Loss(input, up);
    at = value - kStep;
    const double below = Loss(input, up);
    at = value;
    const double difference = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradient[i], difference, 1e-8 * std::max(1.0, std::abs(difference))) << i;
  }
}

// The upstream gradients, with exact output and LSE, not rounded.
Upstream ExactUpstream(const Input& input, bool with_d_lse) {
  Upstream up = MakeUpstream(input, Precision::kFp32, Precision::kFp32, with_d_lse, 5);
  const Result exact = Exact(input);
  up.out = exact.out;
  up.lse = exact.lse;
  return up;
}

void Check(const Input& input, bool with_d_lse = true) {
  const Upstream up = ExactUpstream(input, with_d_lse);
  const Gradients gradients = ExactGradients(input, up);
  const auto q = [](Input& in) -> std::vector<double>& { return in.q; };
  const auto k = [](Input& in) -> std::vector<double>& { return in.k; };
  const auto v = [](Input& in) -> std::vector<double>& { return in.v; };
  const auto sinks = [](Input& in) -> std::vector<double>& { return in.sinks; };
  ExpectCentralDifferences(input, gradients.dq, q, up);
  ExpectCentralDifferences(input, gradients.dk, k, up);
  ExpectCentralDifferences(input, gradients.dv, v, up);
  std::vector<double> d_sinks(input.sinks.size(), 0.0);
  for (size_t i = 0; i < gradients.d_sink.size(); ++i) {
    d_sinks[i % d_sinks.size()] += gradients.d_sink[i];
  }
  ExpectCentralDifferences(input, d_sinks, sinks, up);
}

// Grouped heads, a separate value dimension, a sequence without keys and one without queries.
AttentionSpec SmallSpec() {
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 3;
  spec.head_dim_v = 2;
  spec.sequences.resize(4);
  spec.sequences[0].q_len = 4;
  spec.sequences[0].kv_len = 5;
  spec.sequences[1].q_len = 2;
  spec.sequences[2].kv_len = 2;
  spec.sequences[3].q_len = 5;
  spec.sequences[3].kv_len = 3;
  return spec;
}

Input Filled(const AttentionSpec& spec, uint64_t seed) {
  Input input = InputOf(spec);
  FillNormal(seed, Precision::kFp32, 1.0, &input);
  return input;
}

TEST(ReferenceGradientsTest, FullMaskWithAndWithoutAGradientIntoLse) {
  Check(Filled(SmallSpec(), 1), /*with_d_lse=*/false);
  Check(Filled(SmallSpec(), 2), /*with_d_lse=*/true);
}

std::vector<double> SomeSinks() { return {0.3, -0.2, 1.5, 0.0}; }

// For a bias whose numbers can be changed one by one: [rows, heads, columns].
void CheckBias(Input input, int32_t heads) {
  constexpr int64_t kRows = 11, kColumns = 5, kFirstRow[] = {0, 4, 6, 6};
  std::vector<double> bias(kRows * heads * kColumns);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = i % 9 == 4 ? -kInfinity : 0.1 * (i % 7);
  input.bias = [&](int64_t document, int32_t head, int64_t i, int64_t j) {
    return bias[((kFirstRow[document] + i) * heads + (heads == 1 ? 0 : head)) * kColumns + j];
  };
  const Upstream up = ExactUpstream(input, true);
  const Gradients gradients = ExactGradients(input, up, heads);
  ExpectCentralDifferences(
      input, gradients.d_bias, [&](Input&) -> std::vector<double>& { return bias; }, up);
}

TEST(ReferenceGradientsTest, EveryKindOfMask) {
  std::vector<Mask> masks(10);
  masks[0].causal = true;  // Rows 0 and 1 of the last sequence see no key.
  masks[1].causal = true;
  masks[1].alignment = Mask::Alignment::kTopLeft;
  masks[2].window_left = 1;
  masks[2].window_right = 1;
  masks[3].causal = true;
  masks[3].window_left = 0;
  masks[3].always_visible = 1;
  masks[4].chunk = 2;
  masks[4].causal = true;
  masks[4].prefix = 3;
  masks[5].ranges = {{0, 3, 1, 3, MaskRange::Kind::kCausal},
                     {2, 5, 0, 2, MaskRange::Kind::kInverseCausal}};
  masks[6].ranges = {{0, 2, 0, 1, MaskRange::Kind::kFull}, {1, 4, 2, 5, MaskRange::Kind::kFull}};
  masks[7].ranges = {{0, 3, 0, 5, MaskRange::Kind::kBiCausal},
                     {3, 5, 1, 2, MaskRange::Kind::kBiCausal}};
  masks[8].window_left = 0;
  masks[8].window_right = 2;
  masks[9].window_left = 3;
  masks[9].window_right = 0;
  for (const Mask& mask : masks) {
    AttentionSpec spec = SmallSpec();
    spec.masks = {mask};
    Check(Filled(spec, 3));
    Input input = Filled(spec, 5);
    input.sinks = SomeSinks();
    Check(input);
    CheckBias(input, 4);
  }
  // Separate masks for each head and each sequence.
  AttentionSpec spec = SmallSpec();
  masks[7].query_heads = {1, 2};
  masks[8].query_heads = {3};
  spec.masks = {masks[0], masks[7], masks[8], masks[6]};
  for (size_t i = 0; i < spec.sequences.size(); ++i) spec.sequences[i].mask = i % 2 == 0 ? 0 : 3;
  Check(Filled(spec, 4));
}

TEST(ReferenceGradientsTest, ScoreModifiers) {
  Input input = Filled(SmallSpec(), 4);
  input.soft_cap = 0.8;
  Check(input);
  input.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
  input.sinks = SomeSinks();
  input.bias = [](int64_t, int32_t head, int64_t i, int64_t j) {
    return (i + j) % 4 == 3 ? -kInfinity : 0.1 * static_cast<double>(i - j) + head;
  };
  Check(input);
}

TEST(ReferenceGradientsTest, TheGradientOfABias) {
  for (const int32_t heads : {1, 4}) {
    Input input = Filled(SmallSpec(), 14);
    input.soft_cap = 0.9;
    input.sinks = SomeSinks();
    input.dropout_rate = 0.3;
    CheckBias(input, heads);
  }
}

TEST(ReferenceGradientsTest, BiasBitMaskAndOffset) {
  for (const int32_t heads : {1, 4}) {
    AttentionSpec spec = SmallSpec();
    spec.modifiers.bias = Bias{DataType::kFp32, heads};
    spec.modifiers.lse_offset = true;
    spec.modifiers.sinks = {0.3, -0.2, 1.5, 0.0};
    spec.masks.resize(1);
    spec.masks[0].bit_mask = true;
    spec.bit_mask_heads = heads;
    Input input = Filled(spec, 12);
    FillPairs(13, spec, &input);
    Check(input);
    input.soft_cap = 0.8;
    input.dropout_rate = 0.3;
    Check(input, /*with_d_lse=*/false);
  }
}

TEST(ReferenceGradientsTest, Dropout) {
  for (const double rate : {0.0, 0.3, 0.8}) {
    Input input = Filled(SmallSpec(), 10);
    input.dropout_rate = rate;
    input.dropout_seed = 11;
    Check(input);
    input.soft_cap = 0.8;
    input.sinks = SomeSinks();
    Check(input);
  }
}

TEST(ReferenceGradientsTest, ScalesOfEverySign) {
  for (const double scale : {0.0, -0.7, 2.0}) {
    Input input = Filled(SmallSpec(), 6);
    input.scale = scale;
    Check(input);
  }
}

TEST(ReferenceGradientsTest, RowsThatSeeNothingGiveNothing) {
  AttentionSpec spec = SmallSpec();
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  const Input input = Filled(spec, 7);
  const Gradients gradients = ExactGradients(input, ExactUpstream(input, true));
  // The sequence without keys, and two rows of the last sequence.
  for (const int64_t row : {4, 5, 6, 7}) {
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(gradients.dq[row * 12 + i], 0.0) << row;
  }
  for (const int64_t key : {5, 6}) {  // Keys of the sequence without queries.
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(gradients.dk[key * 6 + i], 0.0) << key;
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(gradients.dv[key * 4 + i], 0.0) << key;
  }
}

GradientAnswer NaiveAnswer(const Input& input, const Upstream& up, Precision precision) {
  const Gradients naive = NaiveGradients(input, up, precision, {}, input.q_heads);
  GradientAnswer answer;
  answer.inputs = precision;
  answer.bias_heads = input.q_heads;
  answer.dq.assign(naive.dq.begin(), naive.dq.end());
  answer.dk.assign(naive.dk.begin(), naive.dk.end());
  answer.dv.assign(naive.dv.begin(), naive.dv.end());
  answer.d_sink.assign(naive.d_sink.begin(), naive.d_sink.end());
  answer.d_bias.assign(naive.d_bias.begin(), naive.d_bias.end());
  return answer;
}

TEST(GradientBudgetTest, TheNaiveAnswerPassesAndDamageIsFound) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
    Input input = InputOf(SmallSpec());
    FillNormal(8, precision, 1.0, &input);
    input.sinks = SomeSinks();
    const Upstream up = MakeUpstream(input, precision, precision, true, 9);
    const GradientAnswer good = NaiveAnswer(input, up, precision);
    EXPECT_TRUE(CheckGradients(input, up, good));
    for (auto tensor : {&GradientAnswer::dq, &GradientAnswer::dk, &GradientAnswer::dv,
                        &GradientAnswer::d_sink, &GradientAnswer::d_bias}) {
      GradientAnswer bad = good;
      (bad.*tensor)[3] += 0.3f;
      EXPECT_FALSE(CheckGradients(input, up, bad));
      (bad.*tensor)[3] = std::nanf("");
      EXPECT_FALSE(CheckGradients(input, up, bad));
      (bad.*tensor).pop_back();
      EXPECT_FALSE(CheckGradients(input, up, bad));
    }
  }
}

// One key whose dO · v equals delta: dS is 0, also in the naive computation in every order.
TEST(GradientBudgetTest, FewMayBeOffByWhatTheyAreMadeOf) {
  AttentionSpec spec;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_dim = 2;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = 1;
  Input input = InputOf(spec);
  input.scale = 1;
  input.q = {1, -2};
  input.k = {1, 0.5};
  input.v = {1.5, -0.25};
  const Upstream up{{1.5, 0.25}, {0}, {1, 1}, {0.5}};
  const GradientAnswer exact = NaiveAnswer(input, up, Precision::kFp32);
  EXPECT_EQ(exact.d_bias, std::vector<float>{0});
  // The terms of dO · v and delta add up to 1.75 and 2.25, in dk to twice that: half an ulp for
  // each of two roundings, times two. The weight is 1: its exponent has sizes 2, so the weight may
  // have an error of 9 half ulps, times two, and a number near 1 has 4 more.
  const float half_ulp = std::ldexp(1.0f, -24);
  float most = 2 * 2 * (1.75f + 2.25f) * half_ulp;
  const auto passes = [&](std::vector<float> GradientAnswer::*tensor, float error) {
    GradientAnswer answer = exact;
    (answer.*tensor)[0] += error;
    return static_cast<bool>(CheckGradients(input, up, answer));
  };
  for (const auto& [tensor, size] : {std::pair(&GradientAnswer::dq, most),
                                     {&GradientAnswer::dk, 2 * most},
                                     {&GradientAnswer::d_bias, most}}) {
    for (const float sign : {-1.0f, 1.0f}) {
      EXPECT_TRUE(passes(tensor, sign * size));
      EXPECT_FALSE(passes(tensor, sign * std::nextafter(size, 1.0f)));
    }
  }
  EXPECT_TRUE(passes(&GradientAnswer::dv, 22 * half_ulp));
  EXPECT_FALSE(passes(&GradientAnswer::dv, 24 * half_ulp));
}

}  // namespace
}  // namespace annulus::reference
