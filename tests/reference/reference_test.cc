#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/reference/budget.h"
#include "tests/reference/from_spec.h"
#include "tests/reference/normal_numbers.h"
#include "tests/reference/reference_attention.h"

namespace annulus::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One head, one dimension, one query 1, so that the scores are the keys.
Input ScoresAndValues(std::vector<double> scores, std::vector<double> values) {
  Input input;
  input.documents = {{1, static_cast<int64_t>(scores.size()), {}}};
  input.q = {1.0};
  input.k = std::move(scores);
  input.v = std::move(values);
  return input;
}

TEST(ReferenceTest, EqualKeysGiveTheMeanOfV) {
  const Row row = ExactRow(ScoresAndValues({3, 3, 3, 3}, {1, 2, 3, 6}), 0, 0);
  EXPECT_DOUBLE_EQ(row.out[0], 3.0);
  EXPECT_DOUBLE_EQ(row.lse, 3 + std::log(4.0));
}

TEST(ReferenceTest, WeightsAreSoftmaxOfScaledScores) {
  Input input = ScoresAndValues({2, 4}, {10, 20});
  input.scale = -0.5;
  const Row row = ExactRow(input, 0, 0);
  const double a = std::exp(-1.0), b = std::exp(-2.0);
  EXPECT_NEAR(row.out[0], (10 * a + 20 * b) / (a + b), 1e-14);
  EXPECT_NEAR(row.lse, std::log(a + b), 1e-14);
}

TEST(ReferenceTest, ARowWithoutKeysIsZeroAndMinusInfinity) {
  Input input = ScoresAndValues({1, 2}, {5, 6});
  Rule none;
  none.window_left = 0;
  none.window_right = 0;
  none.chunk = 1;
  none.causal = true;
  none.ranges = {{0, 0, 0, 2}};
  input.documents[0].rules = {none};
  EXPECT_EQ(ExactRow(input, 0, 0).out[0], 0.0);
  EXPECT_EQ(ExactRow(input, 0, 0).lse, -kInfinity);
  EXPECT_EQ(NaiveRow(input, 0, 0, Precision::kBf16, Precision::kBf16).lse, -kInfinity);
}

TEST(ReferenceTest, HiddenNansDoNotLeak) {
  Input input = ScoresAndValues({std::nan(""), 2}, {std::nan(""), 6});
  Rule last;
  last.window_left = 0;
  input.documents[0].rules = {last};
  EXPECT_EQ(ExactRow(input, 0, 0).out[0], 6.0);
}

TEST(ReferenceTest, ModifiersActInTheirOrder) {
  Input input = ScoresAndValues({2, 5}, {10, 20});
  input.soft_cap = 3.0;
  input.alibi_slopes = {0.25};
  input.sinks = {0.5};
  input.bias = [](int64_t, int32_t, int64_t, int64_t j) { return j == 0 ? 0.125 : 0.0; };
  // Bottom-right: the only query is at position 1, one after key 0.
  const double a = std::exp(3 * std::tanh(2.0 / 3) - 0.25 + 0.125);
  const double b = std::exp(3 * std::tanh(5.0 / 3)), sink = std::exp(0.5);
  const Row row = ExactRow(input, 0, 0);
  EXPECT_NEAR(row.out[0], (10 * a + 20 * b) / (a + b + sink), 1e-13);
  EXPECT_NEAR(row.lse, std::log(a + b + sink), 1e-14);
  input.bias = [](int64_t, int32_t, int64_t, int64_t j) { return j == 0 ? -kInfinity : 0.0; };
  EXPECT_NEAR(ExactRow(input, 0, 0).out[0], 20 * b / (b + sink), 1e-13);
}

TEST(ReferenceTest, DropoutKeepsWhatIsDocumentedAndLeavesTheLse) {
  Input input = ScoresAndValues({1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 4, 8, 16, 32, 64, 128});
  input.dropout_rate = 0.5;
  input.dropout_seed = 1;
  const Row row = ExactRow(input, 0, 0);  // Keys 0, 2, 6 and 7.
  EXPECT_DOUBLE_EQ(row.out[0], (1 + 4 + 64 + 128) / 8.0 / 0.5);
  EXPECT_DOUBLE_EQ(row.lse, 1 + std::log(8.0));
}

TEST(ReferenceTest, TheLargestScoreLeavesSinksOut) {
  Input input = ScoresAndValues({2, 5}, {10, 20});
  input.soft_cap = 3.0;
  input.sinks = {7};
  EXPECT_DOUBLE_EQ(ExactRow(input, 0, 0).max_logit, 3 * std::tanh(5.0 / 3));
  input.documents[0].kv_len = 0;
  EXPECT_EQ(ExactRow(input, 0, 0).max_logit, -kInfinity);
}

TEST(ReferenceTest, QueryHeadsShareKeyHeadsAndDocumentsStayApart) {
  Input input;
  input.q_heads = 4;
  input.kv_heads = 2;
  input.documents = {{0, 1, {}}, {1, 2, {}}, {1, 1, {}}};
  input.q.assign(8, 0.0);
  input.k.assign(8, 0.0);
  input.v = {1, 2, 10, 20, 30, 40, 500, 600};
  EXPECT_EQ(ExactRow(input, 0, 0).out[0], 20.0);
  EXPECT_EQ(ExactRow(input, 0, 1).out[0], 20.0);
  EXPECT_EQ(ExactRow(input, 0, 2).out[0], 30.0);
  EXPECT_EQ(ExactRow(input, 1, 3).out[0], 600.0);
  EXPECT_EQ(Exact(input).lse.size(), 8u);
}

TEST(ReferenceTest, CausalIsBottomRightUnlessTopLeft) {
  Rule causal;
  causal.causal = true;
  EXPECT_TRUE(Sees(causal, 2, 5, 0, 3));
  EXPECT_FALSE(Sees(causal, 2, 5, 0, 4));
  EXPECT_FALSE(Sees(causal, 5, 2, 2, 0));  // An empty row.
  causal.top_left = true;
  EXPECT_TRUE(Sees(causal, 2, 5, 1, 1));
  EXPECT_FALSE(Sees(causal, 2, 5, 1, 2));
  causal.prefix = 4;
  EXPECT_TRUE(Sees(causal, 2, 5, 0, 3));
  EXPECT_FALSE(Sees(causal, 2, 5, 0, 4));
}

TEST(ReferenceTest, WindowsChunksAndFirstKeys) {
  Rule rule;
  rule.window_left = 1;
  rule.window_right = 0;
  rule.always_visible = 1;
  for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(Sees(rule, 6, 6, 4, j), j == 0 || j == 3 || j == 4);
  Rule chunk;
  chunk.chunk = 2;
  for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(Sees(chunk, 7, 4, 0, j), false);  // p = -3
  for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(Sees(chunk, 7, 4, 4, j), j < 2);  // p = 1
}

TEST(ReferenceTest, RoundingKnowsTiesLimitsAndSubnormals) {
  EXPECT_EQ(RoundTo(Precision::kFp16, 65519), 65504);
  EXPECT_EQ(RoundTo(Precision::kFp16, -65520), -kInfinity);
  EXPECT_EQ(RoundTo(Precision::kFp16, std::ldexp(3, -25)), std::ldexp(2, -24));
  EXPECT_EQ(RoundTo(Precision::kBf16, 1 + std::ldexp(1, -8)), 1);
  EXPECT_EQ(RoundTo(Precision::kBf16, 1 + std::ldexp(3, -8)), 1 + std::ldexp(1, -6));
  EXPECT_EQ(RoundTo(Precision::kBf16, 3.4e38), kInfinity);
  EXPECT_EQ(RoundTo(Precision::kFp32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(RoundTo(Precision::kFp32, 1e-46), 0);
  EXPECT_EQ(UlpOf(Precision::kFp16, 1.5), std::ldexp(1, -10));
  EXPECT_EQ(UlpOf(Precision::kFp16, -0.75), std::ldexp(1, -11));
  EXPECT_EQ(UlpOf(Precision::kFp32, 0), std::ldexp(1, -149));
  EXPECT_EQ(UlpOf(Precision::kBf16, 5e-324), std::ldexp(1, -133));
  EXPECT_EQ(UlpOf(Precision::kFp32, 1e300), std::ldexp(1, std::ilogb(1e300) - 23));
  EXPECT_EQ(UlpOf(Precision::kFp32, kInfinity), kInfinity);
}

TEST(NormalNumbers, AreThoseOfTheStandardLibrary) {
  NormalNumbers ours(7);
  std::mt19937_64 random(7);
  std::normal_distribution<double> theirs;
  for (int i = 0; i < 100000; ++i) ASSERT_EQ(ours.Next(), theirs(random)) << i;
}

TEST(ReferenceTest, EveryCodeComesBackAsBytes) {
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    for (uint32_t code = 0; code < 65536; ++code) {
      const std::byte bytes[2] = {std::byte(code & 255), std::byte(code >> 8)};
      const float value = FloatsOf(precision, bytes, 1)[0];
      if (std::isnan(value)) continue;
      const std::vector<std::byte> back = BytesOf(precision, {static_cast<double>(value)});
      ASSERT_EQ(back, (std::vector<std::byte>(bytes, bytes + 2))) << code;
    }
  }
}

AttentionSpec SmallSpec() {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 8;
  spec.head_dim_v = 4;
  spec.sequences.resize(2);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = 9;
  spec.sequences[1].q_len = 3;
  spec.sequences[1].kv_len = 1;
  spec.masks.resize(2);
  spec.masks[0].causal = true;
  spec.masks[1].query_heads = {1};
  return spec;
}

// The answer of the naive implementation itself.
Answer NaiveAnswer(const Input& input, Precision precision) {
  Answer answer;
  answer.inputs = answer.output = precision;
  for (int64_t row = 0; row < input.q_rows(); ++row) {
    for (int32_t head = 0; head < input.q_heads; ++head) {
      const Row naive = NaiveRow(input, row, head, precision, precision);
      answer.out.insert(answer.out.end(), naive.out.begin(), naive.out.end());
      answer.lse.push_back(static_cast<float>(naive.lse));
    }
  }
  return answer;
}

TEST(BudgetTest, TheNaiveAnswerPassesInEveryPrecision) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
    Input input = InputOf(SmallSpec());
    FillNormal(11, precision, 1.0, &input);
    EXPECT_TRUE(CheckWithinBudget(input, NaiveAnswer(input, precision)));
  }
}

TEST(BudgetTest, DamageIsFound) {
  Input input = InputOf(SmallSpec());
  FillNormal(12, Precision::kFp32, 1.0, &input);
  const Answer good = NaiveAnswer(input, Precision::kFp32);
  Answer bad = good;
  bad.out[5] += 1e-4f;
  EXPECT_FALSE(CheckWithinBudget(input, bad));
  bad = good;
  bad.out.back() = std::nanf("");
  EXPECT_FALSE(CheckWithinBudget(input, bad));
  bad = good;
  bad.lse[3] += 1e-3f;
  EXPECT_FALSE(CheckWithinBudget(input, bad));
  bad = good;  // Head 0 of the second sequence's first rows sees no key.
  ASSERT_EQ(bad.lse[18], -std::numeric_limits<float>::infinity());
  bad.lse[18] = -1e30f;
  EXPECT_FALSE(CheckWithinBudget(input, bad));
  bad = good;
  bad.lse.pop_back();
  EXPECT_FALSE(CheckWithinBudget(input, bad));
}

TEST(BudgetTest, SlackIsForNumbersOnly) {
  Input input = InputOf(SmallSpec());
  FillNormal(14, Precision::kFp32, 1.0, &input);
  const auto judge = [&](const Answer& answer, const Slack& slack) {
    ForwardErrors errors;
    EXPECT_TRUE(errors.Add(input, NaiveAnswer(input, Precision::kFp32)));
    EXPECT_TRUE(errors.Add(input, answer));
    return static_cast<bool>(errors.Judge(slack));
  };
  Answer off = NaiveAnswer(input, Precision::kFp32);
  EXPECT_TRUE(judge(off, {}));
  off.out[5] += 1e-4f;
  EXPECT_FALSE(judge(off, {}));
  EXPECT_FALSE(judge(off, {4, 1e-6}));
  EXPECT_TRUE(judge(off, {4, 1e-3}));
  EXPECT_TRUE(judge(off, {1e4, 0}));
  off.lse[3] += 1e-2f;
  EXPECT_FALSE(judge(off, {4, 1e-3}));
  EXPECT_TRUE(judge(off, {4, 1e-1}));
  Slack any;
  any.any_number = true;
  EXPECT_TRUE(judge(off, any));
  off.out[5] = INFINITY;
  EXPECT_FALSE(judge(off, any));
  EXPECT_FALSE(judge(off, {1e9, 1e9}));
}

TEST(BudgetTest, RowsOfASampleAreCheckedAlone) {
  Input input = InputOf(SmallSpec());
  FillNormal(13, Precision::kFp32, 1.0, &input);
  const Answer all = NaiveAnswer(input, Precision::kFp32);
  Answer some;
  some.rows = {7, 2};
  for (const int64_t row : some.rows) {
    some.out.insert(some.out.end(), all.out.begin() + row * 8, all.out.begin() + (row + 1) * 8);
    some.lse.insert(some.lse.end(), all.lse.begin() + row * 2, all.lse.begin() + (row + 1) * 2);
  }
  EXPECT_TRUE(CheckWithinBudget(input, some));
  std::swap(some.rows[0], some.rows[1]);
  EXPECT_FALSE(CheckWithinBudget(input, some));
  EXPECT_EQ(SampleRows(100, 7, 5).size(), 7u);
  EXPECT_EQ(SampleRows(100, 7, 5).back(), 99);
  EXPECT_EQ(SampleRows(3, 7, 5), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(SampleRows(0, 7, 5).empty());
}

}  // namespace
}  // namespace annulus::reference
