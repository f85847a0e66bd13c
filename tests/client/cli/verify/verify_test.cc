#include "client/cli/verify/verify.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "attention/numerics/dropout.h"
#include "attention/numerics/synthetic.h"
#include "attention/spec/tensor_table.h"
#include "base/cpu_list.h"
#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

AttentionSpec SpecOf(int64_t q_len, int64_t kv_len, bool causal, DataType dtype) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 16;
  spec.sequences.resize(2);
  for (Sequence& sequence : spec.sequences) {
    sequence.q_len = q_len;
    sequence.kv_len = kv_len;
  }
  spec.masks.resize(1);
  spec.masks[0].causal = causal;
  return spec;
}

// Inputs, and correct outputs by this test's own computation: online softmax in double, one key at
// a time.
struct Solved {
  explicit Solved(const AttentionSpec& spec) : table(TensorTable(spec)) {
    for (const TensorInfo& tensor : table) {
      const int64_t rows = RowsOf(tensor, spec);
      memory.emplace_back(rows * tensor.row_bytes());
      if (tensor.direction == Direction::kInput)
        FillSyntheticRows(9, tensor, {0, rows}, memory.back().data());
    }
    for (int64_t row = 0; row < spec.q_rows(); ++row) {
      for (int head = 0; head < spec.q_heads; ++head) Solve(spec, row, head);
    }
  }

  void Solve(const AttentionSpec& spec, int64_t row, int head) {
    const Sequence& sequence = spec.sequences[0];
    const int64_t which = row / sequence.q_len, i = row % sequence.q_len;
    double max = -std::numeric_limits<double>::infinity(), sum = 0, most = max;
    const double rate = spec.dropout ? spec.dropout->rate : 0;
    std::vector<double> out(spec.head_dim, 0);
    if (!spec.modifiers.sinks.empty()) {
      max = spec.modifiers.sinks[head];
      sum = 1;
    }
    for (int64_t j = 0; j < sequence.kv_len; ++j) {
      if (spec.masks[0].causal && j > i + sequence.kv_len - sequence.q_len) continue;
      const int64_t key = which * sequence.kv_len + j;
      double score = 0;
      for (int d = 0; d < spec.head_dim; ++d) {
        score += SyntheticValue(9, TensorId::kQ, row, head, d) *
                 SyntheticValue(9, TensorId::kK, key, head / 2, d);
      }
      score /= std::sqrt(spec.head_dim);
      const ScoreModifiers& modifiers = spec.modifiers;
      if (modifiers.soft_cap) score = *modifiers.soft_cap * std::tanh(score / *modifiers.soft_cap);
      if (!modifiers.alibi_slopes.empty()) {
        score -= modifiers.alibi_slopes[head] *
                 static_cast<double>(std::abs(i + sequence.kv_len - sequence.q_len - j));
      }
      const double top = std::max(max, score), keep = std::exp(max - top),
                   add = std::exp(score - top);
      for (int d = 0; d < spec.head_dim; ++d) {
        out[d] *= keep;
        if (spec.dropout && !DropoutRule(*spec.dropout).Keeps(which, head, i, j)) continue;
        out[d] += add / (1 - rate) * SyntheticValue(9, TensorId::kV, key, head / 2, d);
      }
      sum = sum * keep + add;
      max = top;
      most = std::max(most, score);
    }
    for (int d = 0; d < spec.head_dim; ++d) {
      const auto value = static_cast<float>(sum == 0 ? 0 : out[d] / sum);
      const int64_t at = (row * spec.q_heads + head) * spec.head_dim + d;
      ConvertFromFp32(spec.dtype, &value, 1, memory[3].data() + at * BytesPerElement(spec.dtype));
    }
    const bool base_2 = spec.outputs.lse_base == LseBase::k2;
    const auto lse = static_cast<float>((max + std::log(sum)) / (base_2 ? std::log(2.0) : 1));
    if (spec.outputs.max_logit) {
      const auto largest = static_cast<float>(most);
      std::memcpy(memory[5].data() + (row * spec.q_heads + head) * sizeof(float), &largest,
                  sizeof(largest));
    }
    std::memcpy(memory[4].data() + (row * spec.q_heads + head) * sizeof(float), &lse, sizeof(lse));
  }

  VerifyInput Input() const {
    return {memory[0].data(), memory[1].data(), memory[2].data(),
            memory[3].data(), memory[4].data(), memory.size() > 5 ? memory[5].data() : nullptr};
  }

  std::vector<TensorInfo> table;
  std::vector<std::vector<std::byte>> memory;
};

TEST(VerifyTest, RightAnswersAreWithinTheBudget) {
  for (DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    for (bool causal : {false, true}) {
      // Causal, so that some rows see no key.
      const AttentionSpec spec = SpecOf(13, 9, causal, dtype);
      const Solved solved(spec);
      const absl::StatusOr<VerifyReport> report = VerifyRows(spec, solved.Input(), 1000, 1);
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->rows.size(), 26u);
      EXPECT_TRUE(report->within()) << report->output_error << " of " << report->output_budget
                                    << ", LSE " << report->lse_part;
    }
  }
}

// An answer with 17 bits is correct for bf16x3 only; one with 14 bits never is.
TEST(VerifyTest, Bf16x3HasABudgetOfItsOwn) {
  AttentionSpec spec = SpecOf(13, 60, false, DataType::kFp32);
  const auto off_by = [&](double part) {
    Solved solved(spec);
    for (size_t at = 0; at < solved.memory[3].size(); at += sizeof(float)) {
      float value;
      std::memcpy(&value, &solved.memory[3][at], sizeof(value));
      value *= static_cast<float>(at % 8 == 0 ? 1 + part : 1 - part);
      std::memcpy(&solved.memory[3][at], &value, sizeof(value));
    }
    return VerifyRows(spec, solved.Input(), 1000, 1)->within();
  };
  EXPECT_TRUE(off_by(0));
  EXPECT_FALSE(off_by(3e-6));
  spec.arithmetic = Arithmetic::kBf16x3;
  EXPECT_TRUE(off_by(3e-6));
  EXPECT_FALSE(off_by(2e-4));
}

TEST(VerifyTest, PartialsThatTravelledInBf16MayHaveRoundedAnAnswer) {
  const AttentionSpec spec = SpecOf(13, 60, false, DataType::kFp32);
  const auto off_by = [&](float much, bool bf16_partials) {
    Solved solved(spec);
    float value;
    std::memcpy(&value, &solved.memory[3][100 * sizeof(value)], sizeof(value));
    value += much;
    std::memcpy(&solved.memory[3][100 * sizeof(value)], &value, sizeof(value));
    VerifyInput input = solved.Input();
    input.bf16_partials = bf16_partials;
    return VerifyRows(spec, input, 1000, 1)->within();
  };
  // Values are up to 1, and the mean of their sizes is about one half.
  EXPECT_FALSE(off_by(0x1p-10f, false));
  EXPECT_TRUE(off_by(0x1p-10f, true));
  EXPECT_FALSE(off_by(0x1p-8f, true));
}

// Without any one of the options the verdict changes.
TEST(VerifyTest, EveryOptionIsPartOfTheAnswer) {
  AttentionSpec spec = SpecOf(13, 9, true, DataType::kFp32);
  spec.modifiers.soft_cap = 0.25;
  spec.modifiers.alibi_slopes = {0.5f, 0.25f, -0.1f, 0.0625f};
  spec.modifiers.sinks = {1, -1, 0.5f, 3};
  spec.dropout = Dropout{0.25, 6};
  spec.outputs.lse_base = LseBase::k2;
  spec.outputs.max_logit = true;
  Solved solved(spec);
  const absl::StatusOr<VerifyReport> report = VerifyRows(spec, solved.Input(), 1000, 1);
  EXPECT_TRUE(report->within()) << report->output_error << " of " << report->output_budget
                                << ", LSE " << report->lse_part;
  for (int without = 0; without < 6; ++without) {
    AttentionSpec other = spec;
    if (without == 0) other.modifiers.soft_cap.reset();
    if (without == 1) other.modifiers.alibi_slopes.clear();
    if (without == 2) other.modifiers.sinks.clear();
    if (without == 3) other.dropout.reset();
    if (without == 4) other.dropout->seed = 7;
    if (without == 5) other.outputs.lse_base = LseBase::kE;
    EXPECT_FALSE(VerifyRows(other, solved.Input(), 1000, 1)->within()) << without;
  }
  solved.memory[5][10 * 4 + 2] ^= std::byte{16};
  EXPECT_FALSE(VerifyRows(spec, solved.Input(), 1000, 1)->within());
}

TEST(VerifyTest, WrongAnswersAreNot) {
  const AttentionSpec spec = SpecOf(13, 20, true, DataType::kFp32);
  const auto verdict = [&](const std::function<void(Solved*)>& spoil) {
    Solved solved(spec);
    spoil(&solved);
    return VerifyRows(spec, solved.Input(), 26, 1)->within();
  };
  EXPECT_TRUE(verdict([](Solved*) {}));
  EXPECT_FALSE(verdict([](Solved* solved) { solved->memory[3][100 * 4 + 2] ^= std::byte{8}; }));
  EXPECT_FALSE(verdict([](Solved* solved) { solved->memory[4][10 * 4 + 2] ^= std::byte{1}; }));
  EXPECT_FALSE(verdict([](Solved* solved) {
    const float nan = std::nanf("");
    std::memcpy(solved->memory[3].data(), &nan, sizeof(nan));
  }));
  EXPECT_FALSE(verdict([](Solved* solved) { std::swap(solved->memory[1], solved->memory[2]); }));
}

void SetFloat(float value, size_t at, std::vector<std::byte>* memory) {
  std::memcpy(memory->data() + at * sizeof(value), &value, sizeof(value));
}

// One key: the answer is its value, and the naive computation has no error.
TEST(VerifyTest, OneOutputMayBeOffByAnUlpAndNotByMore) {
  AttentionSpec spec = SpecOf(1, 1, false, DataType::kFp32);
  spec.q_heads = spec.kv_heads = spec.head_dim = 1;
  spec.sequences.resize(1);
  Solved solved(spec);
  float value = 0;
  std::memcpy(&value, solved.memory[3].data(), sizeof(value));
  for (const int ulps : {0, 1, 2, 3, 4}) {
    SetFloat(value, 0, &solved.memory[3]);
    EXPECT_EQ(VerifyRows(spec, solved.Input(), 1, 1)->within(), ulps <= 2) << ulps << " ulps";
    value = std::nextafter(value, 2.f);
  }
}

// Two correct answers by fp32 sums in different orders: the naive error of a single output is
// sometimes small by chance.
TEST(VerifyTest, OneOutputOfManyKeysIsJudgedFairly) {
  for (int64_t keys = 200; keys < 500; ++keys) {
    AttentionSpec spec = SpecOf(1, keys, false, DataType::kFp32);
    spec.q_heads = spec.kv_heads = spec.head_dim = 1;
    spec.sequences.resize(1);
    Solved solved(spec);
    float max = 0, weight = 0, sum = 0;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t lane = 0; lane < 16; ++lane) {
        for (int64_t j = lane; j < keys; j += 16) {
          const float score =
              SyntheticValue(9, TensorId::kQ, 0, 0, 0) * SyntheticValue(9, TensorId::kK, j, 0, 0);
          if (pass == 0) max = std::max(max, score);
          if (pass == 0) continue;
          weight += std::exp(score - max);
          sum += std::exp(score - max) * SyntheticValue(9, TensorId::kV, j, 0, 0);
        }
      }
    }
    SetFloat(sum / weight, 0, &solved.memory[3]);
    const absl::StatusOr<VerifyReport> report = VerifyRows(spec, solved.Input(), 1, 1);
    EXPECT_TRUE(report->within()) << keys << " keys: " << report->output_error << " of "
                                  << report->output_budget;
    SetFloat(sum / weight + 1e-5f, 0, &solved.memory[3]);
    EXPECT_FALSE(VerifyRows(spec, solved.Input(), 1, 1)->within()) << keys;
  }
}

TEST(VerifyTest, NanIsRightWhereAnInputMakesItAndOnlyThere) {
  const AttentionSpec spec = SpecOf(13, 9, false, DataType::kFp32);
  const float nan = std::nanf("");
  const int row_size = spec.q_heads * spec.head_dim;
  Solved solved(spec);
  // The first key of the first sequence, which heads 0 and 1 of its 13 rows depend on.
  SetFloat(nan, 3, &solved.memory[1]);
  EXPECT_FALSE(VerifyRows(spec, solved.Input(), 26, 1)->within());
  for (int row = 0; row < 13; ++row) {
    for (int i = 0; i < 2 * spec.head_dim; ++i)
      SetFloat(nan, row * row_size + i, &solved.memory[3]);
    for (int head : {0, 1}) SetFloat(nan, row * spec.q_heads + head, &solved.memory[4]);
  }
  EXPECT_TRUE(VerifyRows(spec, solved.Input(), 26, 1)->within());
  SetFloat(nan, 13 * row_size, &solved.memory[3]);  // A row of the other sequence.
  const absl::StatusOr<VerifyReport> report = VerifyRows(spec, solved.Input(), 26, 1);
  EXPECT_FALSE(report->within());
  EXPECT_EQ(report->worst_head, 0);
}

// The error would be within the budget of a head with large values.
TEST(VerifyTest, EachHeadHasABudgetOfItsOwn) {
  // 4,096 outputs a head.
  const AttentionSpec spec = SpecOf(128, 9, false, DataType::kFp32);
  Solved solved(spec);
  const auto scale = [&](int index, int heads, int begin, int end) {
    for (size_t at = 0; at < solved.memory[index].size() / sizeof(float); ++at) {
      const int head = static_cast<int>(at) / spec.head_dim % heads;
      float value = 0;
      std::memcpy(&value, solved.memory[index].data() + at * sizeof(value), sizeof(value));
      if (head >= begin && head < end) SetFloat(value * 4096, at, &solved.memory[index]);
    }
  };
  scale(2, spec.kv_heads, 0, 1);  // The values of query heads 0 and 1, and their answers.
  scale(3, spec.q_heads, 0, 2);
  for (const int64_t count : {256, 16}) {  // Whole heads, and few outputs.
    const absl::StatusOr<VerifyReport> good = VerifyRows(spec, solved.Input(), count, 1);
    EXPECT_TRUE(good->within()) << count;
    float value = 0;
    const int64_t at = (good->rows[0] * spec.q_heads + 3) * spec.head_dim;  // An output of head 3.
    std::memcpy(&value, solved.memory[3].data() + at * sizeof(value), sizeof(value));
    SetFloat(value + 1e-5f, at, &solved.memory[3]);
    const absl::StatusOr<VerifyReport> report = VerifyRows(spec, solved.Input(), count, 1);
    EXPECT_FALSE(report->within()) << count;
    EXPECT_EQ(report->worst_head, 3) << count;
    SetFloat(value, at, &solved.memory[3]);
  }
}

TEST(VerifyTest, RowsAreDistinctAndFollowTheSeed) {
  const AttentionSpec spec = SpecOf(50, 5, false, DataType::kFp32);
  const Solved solved(spec);
  const auto rows = [&](uint64_t seed) { return VerifyRows(spec, solved.Input(), 7, seed)->rows; };
  EXPECT_EQ(rows(1).size(), 7u);
  EXPECT_EQ(rows(1), rows(1));
  EXPECT_NE(rows(1), rows(2));
}

TEST(VerifyTest, WhatItCannotJudgeIsRefused) {
  AttentionSpec spec = SpecOf(5, 5, false, DataType::kFp32);
  const Solved solved(spec);
  spec.operation = Operation::kGradients;
  EXPECT_EQ(DetailOf(VerifyRows(spec, solved.Input(), 7, 1).status()).reason, "NOT_SERVED");
}

// Scores near 0 are sums of terms in the hundreds, added in fp32 in another order than the naive
// answer's. No fp32 arithmetic is more accurate.
TEST(VerifyTest, AnLseMayBeOffAsMuchAsItsScoresAre) {
  constexpr int kRows = 400, kDim = 64;
  for (const LseBase base : {LseBase::kE, LseBase::k2}) {
    AttentionSpec spec;
    spec.dtype = DataType::kFp32;
    spec.q_heads = spec.kv_heads = 1;
    spec.head_dim = kDim;
    spec.scale = 1;
    spec.outputs.lse_base = base;
    spec.sequences.resize(1);
    spec.sequences[0].q_len = kRows;
    spec.sequences[0].kv_len = 1;
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> q(kRows * kDim), k(kDim), v(kDim), out, lse;
    for (float& x : q) x = 16 * normal(random);
    for (std::vector<float>* of_key : {&k, &v})
      for (float& x : *of_key) x = normal(random);
    for (int row = 0; row < kRows; ++row) {
      float score = 0;
      for (int i = kDim; i-- > 0;) score += q[row * kDim + i] * k[i];
      lse.push_back(base == LseBase::kE ? score : score / std::log(2.0f));
      out.insert(out.end(), v.begin(), v.end());
    }
    const auto bytes = [](const std::vector<float>& x) {
      return reinterpret_cast<const std::byte*>(x.data());
    };
    VerifyInput input = {bytes(q), bytes(k), bytes(v), bytes(out), bytes(lse)};
    const VerifyReport right = *VerifyRows(spec, input, kRows, 1);
    EXPECT_TRUE(right.within()) << right.lse_part;
    lse[3] += 0.02f;
    EXPECT_FALSE(VerifyRows(spec, input, kRows, 1)->within());
  }
}

// Rows of 34 blocks of keys, which threads process in two parts.
AttentionSpec ManyBlocks() {
  AttentionSpec spec = SpecOf(3, 17000, true, DataType::kFp32);
  spec.sequences.resize(1);
  spec.q_heads = 2;
  spec.kv_heads = 1;
  spec.modifiers.alibi_slopes = {0, 1e-4};
  spec.dropout = Dropout{0.1, 6};
  return spec;
}

TEST(VerifyTest, KeysOfManyBlocksAreAllSeen) {
  const AttentionSpec spec = ManyBlocks();
  const Solved solved(spec);
  const absl::StatusOr<VerifyReport> report = VerifyRows(spec, solved.Input(), 3, 1);
  EXPECT_TRUE(report->within()) << report->output_error << " of " << report->output_budget;
  for (const int64_t key : {0, 511, 512, 8703, 8704, 16990}) {
    Solved other = solved;
    SetFloat(1e4, key * spec.head_dim, &other.memory[2]);
    EXPECT_FALSE(VerifyRows(spec, other.Input(), 3, 1)->within()) << key;
  }
}

TEST(VerifyTest, NoNumberDependsOnThreads) {
  const AttentionSpec spec = ManyBlocks();
  const Solved solved(spec);
  const VerifyReport all = *VerifyRows(spec, solved.Input(), 2, 1);
  VerifyReport one;
  std::thread([&] {
    ASSERT_TRUE(KeepToCpus({AllowedCpus().front()}).ok());
    one = *VerifyRows(spec, solved.Input(), 2, 1);
  }).join();
  EXPECT_EQ(one.output_error, all.output_error);
  EXPECT_EQ(one.output_budget, all.output_budget);
  EXPECT_EQ(one.lse_part, all.lse_part);
}

}  // namespace
}  // namespace annulus
