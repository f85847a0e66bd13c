#ifndef ANNULUS_TESTS_REFERENCE_BUDGET_H_
#define ANNULUS_TESTS_REFERENCE_BUDGET_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "attention/numerics/error_budget.h"
#include "tests/reference/reference_attention.h"

namespace annulus::reference {

// The answer of an implementation.
struct Answer {
  Precision inputs = Precision::kFp32;  // Type of q, k and v.
  Precision output = Precision::kFp32;
  // Packed query rows of `out` and `lse`, in this order. Empty: all rows of the input.
  std::vector<int64_t> rows;
  std::vector<float> out;  // [rows, q_heads, value_dim]
  std::vector<float> lse;  // [rows, q_heads]
  bool lse_base_2 = false;
  std::vector<float> lse_rest;   // [rows, q_heads]. Empty: not requested. Not checked.
  std::vector<float> max_logit;  // [rows, q_heads]. Empty: not requested.
  bool bf16_partials = false;    // From the job's execution.
};

// Checks the error budget (docs/reference/numerics.md), head by head over the given rows:
//   max |out − exact| <= 2 · max |naive − exact| + ½ ulp(max |exact|)
//   |lse − exact| <= 1e-5 · max(1, |exact|) for fp32 inputs, 1e-3 for 16 bits; −infinity exactly.
//   max_logit: like lse. If partials travelled in bf16, an output may differ by
//   2⁻⁸ · Σ_j P_ij |v_j| more, the largest of its head.
// A head with fewer than 4,096 outputs is a small sample: its naive error is the largest of all
// heads, plus ¾ ulp. NaN is correct only where the exact result is NaN, or where the naive one
// overflows too. The failure message has the worst head, row and both errors. Takes twice rows ×
// keys × dims × heads in scalar code: set `rows` for long jobs.
testing::AssertionResult CheckWithinBudget(const Input& input, const Answer& answer);

// Additional tolerance.
struct Slack {
  double times = 1;  // Factor of the budget.
  // Fraction of a head's largest exact output, and of max(1, |exact|) of an LSE.
  double relative = 0;
  bool any_number = false;  // Accepts any finite number where a finite one is expected.
};

// The errors of one answer, or of answers to several draws of one spec's inputs, checked together.
// The naive error is then the largest of all draws, which depends less on chance.
class ForwardErrors {
 public:
  // Fails if the answer has the wrong size.
  testing::AssertionResult Add(const Input& input, const Answer& answer);
  // Fails, with any slack, if an answer is not finite where it should be.
  testing::AssertionResult Judge(const Slack& slack = {}) const;

 private:
  struct Head {
    HeadErrors errors;
    int64_t worst_row = 0, worst_lse_row = 0;  // Rows of the largest errors.
  };
  void AddRow(const Input& input, const Answer& answer, int32_t head, size_t index);
  void AllowForRounding(const Input& input, const Answer& answer);

  std::vector<Head> heads_;
  int64_t outputs_ = 0;  // Outputs of a head in one draw.
  Precision output_ = Precision::kFp32;
  double lse_tolerance_ = 0;
};

// `count` rows of [0, rows), chosen by `seed`, including the first and the last. All rows if count
// >= rows.
std::vector<int64_t> SampleRows(int64_t rows, int64_t count, uint64_t seed);

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_BUDGET_H_
