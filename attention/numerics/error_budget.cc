#include "attention/numerics/error_budget.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace annulus {
namespace {

constexpr int64_t kSmallSample = 4096;
// The error of sums of numbers below 2^-126, which a kernel may flush to zero.
constexpr double kFlushed = 0x1p-110;

double Distance(double exact, double naive, double answer) {
  if (exact == answer || (std::isnan(exact) && std::isnan(answer))) return 0;
  // The sums leave the range of fp32. The element where they do so depends on their order.
  if (!std::isfinite(naive) && !std::isfinite(answer)) return 0;
  const double distance = std::abs(answer - exact);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

}  // namespace

void HeadErrors::AddOutput(double exact, double naive, double answer) {
  answer_ = std::max(answer_, Distance(exact, naive, answer));
  if (!std::isfinite(exact)) return;
  largest_ = std::max(largest_, std::abs(exact));
  if (std::isfinite(naive)) naive_ = std::max(naive_, std::abs(naive - exact));
}

void HeadErrors::AddLse(double exact, double naive, double answer, const LseAllowance& allowance) {
  // An exact −inf is a row that sees no key; the naive LSE has no error there either.
  const bool nothing = exact == -std::numeric_limits<double>::infinity();
  const double of_fp32 = nothing ? 0 : static_cast<float>(naive);
  const double distance = Distance(exact, of_fp32, answer);
  const double magnitude =
      std::isfinite(exact) ? std::max(allowance.least, std::abs(exact)) : allowance.least;
  double allowed = allowance.relative * magnitude;
  if (std::isfinite(allowance.rounding)) allowed = std::max(allowed, allowance.rounding);
  lse_ = std::max(lse_, distance / allowed);
}

void HeadErrors::Allow(double more) {
  if (std::isfinite(more)) allowed_ = std::max(allowed_, more);
}

void HeadErrors::AllowOfFew(double more) {
  if (std::isfinite(more)) allowed_of_few_ = std::max(allowed_of_few_, more);
}

void HeadErrors::AddScale(double scale) {
  if (std::isfinite(scale)) scale_ = std::max(scale_, scale);
}

double HeadErrors::scale() const {
  if (scale_ > 0) return scale_;
  return allowed_of_few_ > 0 ? allowed_of_few_ : largest_;
}

double LseTolerance(bool fp32_inputs, bool bf16x3) {
  if (bf16x3) return 1e-4;
  return fp32_inputs ? 1e-5 : 1e-3;
}

std::vector<double> OutputBudgets(const std::vector<HeadErrors>& heads, int64_t outputs,
                                  double (*ulp)(double magnitude)) {
  const bool few = outputs < kSmallSample;
  const auto naive_of = [&](const HeadErrors& head) {
    return head.naive() + (few ? 0.75 * ulp(head.largest()) : 0);
  };
  double worst = 0;  // The largest naive error of a head, as a part of its scale.
  for (const HeadErrors& head : heads) {
    if (head.scale() > 0) worst = std::max(worst, naive_of(head) / head.scale());
  }
  std::vector<double> budgets;
  for (const HeadErrors& head : heads) {
    const double naive = few ? std::max(naive_of(head), worst * head.scale()) : naive_of(head);
    const double allowed = head.allowed() + (few ? head.allowed_of_few() : 0);
    budgets.push_back(2 * naive + ulp(head.largest()) / 2 + allowed + kFlushed);
  }
  return budgets;
}

}  // namespace annulus
