#ifndef ANNULUS_ATTENTION_NUMERICS_ERROR_BUDGET_H_
#define ANNULUS_ATTENTION_NUMERICS_ERROR_BUDGET_H_

#include <cstdint>
#include <vector>

namespace annulus {

// The error budget of docs/reference/numerics.md, as arithmetic: what is judged, and by which exact
// and naive numbers, is the caller's matter. The tests' reference and the client's --verify share
// it.

// What an LSE may be off: relative · max(least, |exact|), or `rounding` where that is more.
struct LseAllowance {
  double relative = 0;  // LseTolerance().
  double least = 1;     // What a natural 1 is in the LSE's base.
  double rounding = 0;  // What scores may be off by rounding (pair_error.h).
};

// Largest errors of one head over the outputs that are judged.
class HeadErrors {
 public:
  // One output: the exact one, the naive one in the output's type, and the answer. NaN where NaN is
  // exact is right; so is a number out of range (NaN or infinite) where the naive one is.
  void AddOutput(double exact, double naive, double answer);
  // One LSE, or logit.
  void AddLse(double exact, double naive, double answer, const LseAllowance& allowance);

  // One output may be off by so much more than the budget says. Ignored where it is not finite.
  void Allow(double more);
  // So much more where few outputs are judged (pair_error.h). Ignored where it is not finite.
  void AllowOfFew(double more);
  // What is added up for one output comes to so much, at most: rounding errors are in proportion to
  // that. Only what it is in one head beside another matters, where few are judged; without it,
  // what is allowed of few, else the largest output, stands for it. Ignored where it is not finite.
  void AddScale(double scale);

  double answer() const { return answer_; }    // max |answer − exact|; infinite where one is NaN.
  double naive() const { return naive_; }      // max |naive − exact|, of those in range.
  double largest() const { return largest_; }  // max |exact|, of those in range.
  double allowed() const { return allowed_; }  // The most that Allow was told.
  double allowed_of_few() const { return allowed_of_few_; }
  double scale() const;                // The most that AddScale was told, or what stands for it.
  double lse() const { return lse_; }  // The largest error of an LSE over what is allowed.

 private:
  double answer_ = 0, naive_ = 0, largest_ = 0, lse_ = 0, allowed_ = 0, allowed_of_few_ = 0,
         scale_ = 0;
};

// What an LSE may be off, as a part of max(1, |exact|): 1e-5 for fp32 inputs, 1e-4 for those that
// are multiplied as bf16x3, 1e-3 for 16 bits.
double LseTolerance(bool fp32_inputs, bool bf16x3);

// Of a job whose partials travelled in bf16 (Execution.bf16_partials) an output may be off by so
// much of Σ_j P_ij |v_j| besides: each partial was rounded once.
inline constexpr double kBf16PartialError = 0x1p-8;

// What each head's outputs may be off, for heads of which `outputs` were judged:
//   2 · naive error + ½ ulp(largest exact output) + allowed + 2^-110
// where, for fewer than 4,096 outputs, ¾ ulp are added to the naive error, which is then no less a
// part of the head's scale than it is in any other head, and what is allowed of few is added: the
// largest of a few errors is luck, of ours as of the naive ones. `ulp` is the step of the output's
// type at a magnitude.
std::vector<double> OutputBudgets(const std::vector<HeadErrors>& heads, int64_t outputs,
                                  double (*ulp)(double magnitude));

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_ERROR_BUDGET_H_
