#ifndef ANNULUS_TESTS_REFERENCE_BUDGET_H_
#define ANNULUS_TESTS_REFERENCE_BUDGET_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "attention/numerics/error_budget.h"
#include "tests/reference/reference_attention.h"

namespace annulus::reference {

// What an implementation answered.
struct Answer {
  Precision inputs = Precision::kFp32;  // Of q, k and v.
  Precision output = Precision::kFp32;
  // Packed query rows that `out` and `lse` hold, in this order; empty: all rows of the input.
  std::vector<int64_t> rows;
  std::vector<float> out;  // [rows, q_heads, value_dim]
  std::vector<float> lse;  // [rows, q_heads]
  bool lse_base_2 = false;
  std::vector<float> lse_rest;   // [rows, q_heads]; empty: not asked for. Not judged.
  std::vector<float> max_logit;  // [rows, q_heads]; empty: not asked for.
  bool bf16_partials = false;    // Of the job's execution.
};

// The error budget (docs/reference/numerics.md), head by head over the rows given:
//   max |out − exact| <= 2 · max |naive − exact| + ½ ulp(max |exact|)
//   |lse − exact| <= 1e-5 · max(1, |exact|) for fp32 inputs, 1e-3 for 16 bits; −infinity exactly.
//   The same for max_logit. Where partials travelled in bf16, an output may be off by
//   2⁻⁸ · Σ_j P_ij |v_j| more, the largest of its head.
// A head with fewer than 4,096 outputs is a small sample: its naive error is the largest of all
// heads, plus ¾ ulp. A NaN is right exactly where the exact one is, or where the naive one is out
// of range as well. The failure names the worst head, row and both errors. Costs rows × keys × dims
// × heads twice in scalar code: give `rows` for long jobs.
testing::AssertionResult CheckWithinBudget(const Input& input, const Answer& answer);

// What may be off beyond the budget.
struct Slack {
  double times = 1;         // The budget.
  double relative = 0;      // Of a head's largest exact output, and of max(1, |exact|) of an LSE.
  bool any_number = false;  // All is good that is finite where it should be.
};

// The errors of one answer, or of answers to several draws of the inputs of one spec, judged as
// one: the naive error is the largest of all draws then, which is less a matter of luck.
class ForwardErrors {
 public:
  // Fails where the answer has the wrong size.
  testing::AssertionResult Add(const Input& input, const Answer& answer);
  // Fails, whatever the slack, where an answer is not finite and should be.
  testing::AssertionResult Judge(const Slack& slack = {}) const;

 private:
  struct Head {
    HeadErrors errors;
    int64_t worst_row = 0, worst_lse_row = 0;  // Where they were largest.
  };
  void AddRow(const Input& input, const Answer& answer, int32_t head, size_t index);
  void AllowForRounding(const Input& input, const Answer& answer);

  std::vector<Head> heads_;
  int64_t outputs_ = 0;  // Of a head, in one draw.
  Precision output_ = Precision::kFp32;
  double lse_tolerance_ = 0;
};

// `count` rows of [0, rows), spread by `seed`; the first and the last are always among them. All of
// them where count >= rows.
std::vector<int64_t> SampleRows(int64_t rows, int64_t count, uint64_t seed);

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_BUDGET_H_
