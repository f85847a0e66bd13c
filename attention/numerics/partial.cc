#include "attention/numerics/partial.h"

#include <algorithm>
#include <cstddef>

#include "attention/numerics/wide_lse.h"

namespace annulus {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr double kLog2e = 1.44269504088896340736;
constexpr float kLost = std::numeric_limits<float>::quiet_NaN();

// −inf means that no key was seen, so a value below the range of fp32 becomes NaN instead.
float InBase2(double natural) {
  const auto lse = static_cast<float>(natural * kLog2e);
  return lse == kNothing && natural != static_cast<double>(kNothing) ? kLost : lse;
}

// The rest of `lse` for a row whose largest score is `top` and whose weights exp(s − top) sum to
// `weight`.
float RestOf(float lse, float top, float weight, bool base_2) {
  const WideLse exact = {double{top}, std::log(double{weight})};
  return RestOf(exact, base_2 ? LseBase::k2 : LseBase::kE, lse);
}

}  // namespace

void Merge(RowState& a, absl::Span<float> sum_a, const RowState& b, absl::Span<const float> sum_b) {
  // Skipping is also required: an identity must change no bit, and its sum may hold NaN (0 · NaN).
  if (b.max == kNothing) return;
  if (a.max == kNothing) {
    a = b;
    std::copy(sum_b.begin(), sum_b.end(), sum_a.begin());
    return;
  }
  const float top = std::max(a.max, b.max);
  const float weight_a = MergeWeight(a.max, top), weight_b = MergeWeight(b.max, top);
  float* to = sum_a.data();
  const float* from = sum_b.data();
  for (size_t i = 0, n = sum_a.size(); i < n; ++i) to[i] = weight_a * to[i] + weight_b * from[i];
  a = {top, weight_a * a.weight + weight_b * b.weight};
}

RowDivision DivisionOf(const RowState& state, const FinishRule& rule) {
  RowDivision by;
  const float sink = rule.sink.value_or(kNothing);
  if (state.max == kNothing) {
    by.instead = 0.0f;
    by.lse = rule.lse_base_2 ? InBase2(sink) : sink;
    return by;
  }
  if (state.weight == 0 && !rule.sink) {
    by.instead = by.lse = kLost;
    return by;
  }
  const float top = std::max(state.max, sink);
  by.scale = rule.sink ? MergeWeight(state.max, top) : 1.0f;
  const float weight = by.scale * state.weight + MergeWeight(sink, top);
  by.divisor = weight * rule.kept;
  by.lse =
      rule.lse_base_2 ? InBase2(double{top} + std::log(double{weight})) : top + std::log(weight);
  if (rule.lse_rest) by.lse_rest = RestOf(by.lse, top, weight, rule.lse_base_2);
  return by;
}

float Finish(const RowState& state, absl::Span<const float> sum, absl::Span<float> out,
             const FinishRule& rule) {
  const RowDivision by = DivisionOf(state, rule);
  if (by.instead) std::fill(out.begin(), out.end(), *by.instead);
  if (by.instead) return by.lse;
  // + 0.0f turns −0 into +0. Otherwise the sign of a zero would depend on the order of the keys.
  const float* from = sum.data();
  float* to = out.data();
  for (size_t i = 0, n = out.size(); i < n; ++i) to[i] = by.scale * from[i] / by.divisor + 0.0f;
  return by.lse;
}

float MaxLogit(const RowState& state) {
  if (state.max == kNothing) return kNothing;
  return state.weight == 0 || std::isnan(state.weight) ? kLost : state.max;
}

}  // namespace annulus
