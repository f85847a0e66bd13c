#include "attention/partial.h"

#include <algorithm>
#include <cstddef>

namespace annulus {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr double kLog2e = 1.44269504088896340736;
constexpr float kLost = std::numeric_limits<float>::quiet_NaN();

}  // namespace

void Merge(RowState& a, absl::Span<float> sum_a, const RowState& b, absl::Span<const float> sum_b) {
  // Not only faster: an identity must not change a bit, nor let what lies in its sum leak (0 ·
  // NaN).
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

float Finish(const RowState& state, absl::Span<const float> sum, absl::Span<float> out,
             const FinishRule& rule) {
  const float sink = rule.sink.value_or(kNothing);
  if (state.max == kNothing) {
    std::fill(out.begin(), out.end(), 0.0f);
    return rule.lse_base_2 ? static_cast<float>(sink * kLog2e) : sink;
  }
  if (state.weight == 0 && !rule.sink) {
    std::fill(out.begin(), out.end(), kLost);
    return kLost;
  }
  const float top = std::max(state.max, sink);
  const float scale = rule.sink ? MergeWeight(state.max, top) : 1.0f;
  const float weight = scale * state.weight + MergeWeight(sink, top);
  const float divisor = weight * rule.kept;
  // + 0.0f turns −0 into +0, so that a sign of zero never tells in which order keys were seen.
  const float* from = sum.data();
  float* to = out.data();
  for (size_t i = 0, n = out.size(); i < n; ++i) to[i] = scale * from[i] / divisor + 0.0f;
  if (rule.lse_base_2) return static_cast<float>((double{top} + std::log(double{weight})) * kLog2e);
  return top + std::log(weight);
}

float MaxLogit(const RowState& state) {
  if (state.max == kNothing) return kNothing;
  return state.weight == 0 || std::isnan(state.weight) ? kLost : state.max;
}

}  // namespace annulus
