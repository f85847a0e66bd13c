#ifndef ANNULUS_ATTENTION_NUMERICS_ERROR_BUDGET_H_
#define ANNULUS_ATTENTION_NUMERICS_ERROR_BUDGET_H_

#include <cstdint>
#include <vector>

namespace annulus {

// The arithmetic of docs/reference/numerics.md, "The error budget". The caller chooses the outputs
// to judge and computes their exact and naive values. The tests' reference and the client's
// --verify share this code.

// The error that an LSE may have: relative · max(least, |exact|), or `rounding` if that is larger.
struct LseAllowance {
  double relative = 0;  // LseTolerance().
  double least = 1;     // A natural 1 in the LSE's base.
  double rounding = 0;  // The error that rounding may cause in scores (pair_error.h).
};

// The largest errors of one head over the outputs that are judged. Not thread-safe.
class HeadErrors {
 public:
  // Adds one output: its exact value, the naive value in the output's type, and the answer. A NaN
  // answer is right if the exact value is NaN. A NaN or infinite answer is right if the naive value
  // is NaN or infinite.
  void AddOutput(double exact, double naive, double answer);
  // Adds one LSE or one max_logit.
  void AddLse(double exact, double naive, double answer, const LseAllowance& allowance);

  // Widens the budget of each output by `more`. The largest call counts; a value that is not finite
  // is ignored.
  void Allow(double more);
  // Widens the budget by `more` if few outputs are judged (pair_error.h). The largest call counts;
  // a value that is not finite is ignored.
  void AllowOfFew(double more);
  // Gives an upper bound on the sum of magnitudes behind one output of the head. Rounding errors
  // are proportional to it. Only the ratio between heads matters, and only if few outputs are
  // judged. The largest call counts; a value that is not finite is ignored. Without a call,
  // allowed_of_few() stands for it, or largest() if that is 0.
  void AddScale(double scale);

  double answer() const { return answer_; }    // max |answer − exact|; infinite if one is NaN.
  double naive() const { return naive_; }      // max |naive − exact| over finite pairs.
  double largest() const { return largest_; }  // max |exact| over finite values.
  double allowed() const { return allowed_; }  // The largest value of Allow.
  // The largest value of AllowOfFew.
  double allowed_of_few() const { return allowed_of_few_; }
  double scale() const;                // The largest value of AddScale, or its substitute.
  double lse() const { return lse_; }  // max of LSE error / allowed error.

 private:
  double answer_ = 0, naive_ = 0, largest_ = 0, lse_ = 0, allowed_ = 0, allowed_of_few_ = 0,
         scale_ = 0;
};

// The relative tolerance of an LSE, as a part of max(1, |exact|): 1e-5 for fp32 inputs, 1e-4 for
// fp32 inputs that are multiplied as bf16x3, 1e-3 for 16-bit inputs.
double LseTolerance(bool fp32_inputs, bool bf16x3);

// The additional error of an output if partials travelled in bf16 (Execution.bf16_partials), as a
// part of Σ_j P_ij |v_j|. Each partial is rounded once.
inline constexpr double kBf16PartialError = 0x1p-8;

// The error that each head's outputs may have, for heads of which `outputs` outputs were judged:
//   2 · naive error + ½ ulp(largest exact output) + allowed + 2^-110
// The largest of a few errors depends on luck, for the answer and for the naive values alike. So
// for fewer than 4,096 outputs
//
// - ¾ ulp are added to the naive error,
// - the naive error is raised to the largest part of scale() that any head has,
// - allowed_of_few() is added.
//
// `ulp` returns the step of the output's type at a magnitude.
std::vector<double> OutputBudgets(const std::vector<HeadErrors>& heads, int64_t outputs,
                                  double (*ulp)(double magnitude));

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_ERROR_BUDGET_H_
