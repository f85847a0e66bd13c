#ifndef ANNULUS_ATTENTION_NUMERICS_PARTIAL_H_
#define ANNULUS_ATTENTION_NUMERICS_PARTIAL_H_

#include <cmath>
#include <limits>
#include <optional>

#include "absl/types/span.h"

namespace annulus {

// The state of one row over some of its keys: `sum` = Σ exp(s − max)·v and `weight` = Σ exp(s −
// max), all in fp32. Partials form a commutative monoid up to rounding (docs/reference/numerics.md,
// "State and merge"). The identity, max = −inf, means that no key was seen.
//
// If a row has seen keys and all their scores are −inf (below the range of fp32), weight is 0. Then
// max is finite and no higher than any score that fp32 holds.
struct RowState {
  float max = -std::numeric_limits<float>::infinity();
  float weight = 0;
};

// exp(row_max − merged_max), and 0 if no key was seen (−inf − −inf would be NaN).
inline float MergeWeight(float row_max, float merged_max) {
  return row_max == -std::numeric_limits<float>::infinity() ? 0.0f : std::exp(row_max - merged_max);
}

// Merges b into a. Both spans have value_dim elements. The operands are never swapped: a fused
// multiply-add is not symmetric, so equal bits depend on the order.
void Merge(RowState& a, absl::Span<float> sum_a, const RowState& b, absl::Span<const float> sum_b);

// The options of Finish, which is applied once per row, after all merges.
struct FinishRule {
  // The row's sink: a score without a value, in the denominator only. Finite.
  std::optional<float> sink;
  float kept = 1;           // 1 − dropout rate. It divides outputs, not the LSE.
  bool lse_base_2 = false;  // True if the LSE is to base 2, else natural.
  bool lse_rest = false;    // True if the rest of the LSE is also computed.
};

// How the sums of a row become its output: scale · sum / divisor + 0, or `instead` in every element
// if it is set.
struct RowDivision {
  float scale = 1, divisor = 1;
  std::optional<float> instead;
  float lse = 0;  // The return value of Finish.
  float lse_rest =
      0;  // The part of the LSE that rounding removed (wide_lse.h); 0 unless FinishRule.lse_rest.
};
RowDivision DivisionOf(const RowState& state, const FinishRule& rule);

// Writes output = sum / weight, or 0 if the row has seen no key. Returns the LSE: −inf if no key
// was seen and there is no sink, and the sink if there is only that. If all scores seen are −inf
// and there is no sink, output and LSE are NaN, because fp32 cannot tell which score was the
// largest. An LSE to base 2 below the range of fp32 is NaN, too.
float Finish(const RowState& state, absl::Span<const float> sum, absl::Span<float> out,
             const FinishRule& rule = {});

// The largest score that the row has seen, without the sink. −inf if no key was seen. NaN if a
// score was NaN or all scores were −inf.
float MaxLogit(const RowState& state);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_PARTIAL_H_
