#include "client/verify.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/error.h"
#include "attention/synthetic.h"
#include "attention/tensor_table.h"
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

// Inputs, and the right outputs by a computation of this test's own: online softmax in double, one
// key at a time.
struct Solved {
  explicit Solved(const AttentionSpec& spec) : table(TensorTable(spec)) {
    for (const TensorInfo& tensor : table) {
      const int64_t rows = tensor.rows == RowSpace::kQuery ? spec.q_rows() : spec.kv_rows();
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
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    std::vector<double> out(spec.head_dim, 0);
    for (int64_t j = 0; j < sequence.kv_len; ++j) {
      if (spec.masks[0].causal && j > i + sequence.kv_len - sequence.q_len) continue;
      const int64_t key = which * sequence.kv_len + j;
      double score = 0;
      for (int d = 0; d < spec.head_dim; ++d) {
        score += SyntheticValue(9, TensorId::kQ, row, head, d) *
                 SyntheticValue(9, TensorId::kK, key, head / 2, d);
      }
      score /= std::sqrt(spec.head_dim);
      const double top = std::max(max, score), keep = std::exp(max - top),
                   add = std::exp(score - top);
      for (int d = 0; d < spec.head_dim; ++d) {
        out[d] = out[d] * keep + add * SyntheticValue(9, TensorId::kV, key, head / 2, d);
      }
      sum = sum * keep + add;
      max = top;
    }
    for (int d = 0; d < spec.head_dim; ++d) {
      const auto value = static_cast<float>(sum == 0 ? 0 : out[d] / sum);
      const int64_t at = (row * spec.q_heads + head) * spec.head_dim + d;
      ConvertFromFp32(spec.dtype, &value, 1, memory[3].data() + at * BytesPerElement(spec.dtype));
    }
    const auto lse = static_cast<float>(max + std::log(sum));
    std::memcpy(memory[4].data() + (row * spec.q_heads + head) * sizeof(float), &lse, sizeof(lse));
  }

  VerifyInput Input() const {
    return {memory[0].data(), memory[1].data(), memory[2].data(), memory[3].data(),
            memory[4].data()};
  }

  std::vector<TensorInfo> table;
  std::vector<std::vector<std::byte>> memory;
};

TEST(VerifyTest, RightAnswersAreWithinTheBudget) {
  for (DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    for (bool causal : {false, true}) {
      const AttentionSpec spec = SpecOf(13, 9, causal, dtype);  // Causal: rows that see nothing.
      const Solved solved(spec);
      const absl::StatusOr<VerifyReport> report = VerifyRows(spec, solved.Input(), 1000, 1);
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->rows.size(), 26u);
      EXPECT_TRUE(report->within()) << report->output_error << " of " << report->output_budget
                                    << ", LSE " << report->lse_part;
    }
  }
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
  spec.modifiers.soft_cap = 30;
  EXPECT_EQ(DetailOf(VerifyRows(spec, solved.Input(), 7, 1).status()).reason, "NOT_SERVED");
}

}  // namespace
}  // namespace annulus
