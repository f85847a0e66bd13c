#ifndef ANNULUS_ATTENTION_NUMERICS_PARTIAL_H_
#define ANNULUS_ATTENTION_NUMERICS_PARTIAL_H_

#include <cmath>
#include <limits>
#include <optional>

#include "absl/types/span.h"

namespace annulus {

// Attention over some of a row's keys: `sum` = Σ exp(s − max)·v, `weight` = Σ exp(s − max).
// Partials form a commutative monoid up to rounding (merge: semantics §2.3,
// docs/reference/numerics.md). The identity means "nothing seen". A row that has seen keys, all of
// whose scores are −inf (below the range of fp32), has a finite max, no higher than any score that
// fp32 holds, and a weight of 0.
struct RowState {
  float max = -std::numeric_limits<float>::infinity();
  float weight = 0;
};

// exp(row_max − merged_max), and 0 where nothing was seen (−inf − −inf would be NaN).
inline float MergeWeight(float row_max, float merged_max) {
  return row_max == -std::numeric_limits<float>::infinity() ? 0.0f : std::exp(row_max - merged_max);
}

// Merges b into a. Spans are value_dim long. Left and right are never swapped: a fused multiply-add
// is not symmetric, and equal bits depend on the order.
void Merge(RowState& a, absl::Span<float> sum_a, const RowState& b, absl::Span<const float> sum_b);

// What a row's end takes beside its state: once, after all merges.
struct FinishRule {
  std::optional<float> sink;  // Finite. A score without a value, which takes part in the sum.
  float kept = 1;             // 1 − dropout rate: divides outputs, not the LSE.
  bool lse_base_2 = false;    // The LSE to base 2, else natural.
  bool lse_rest = false;      // The rest of the LSE is wanted too.
};

// How a row's sums become its output: scale · sum / divisor + 0, or `instead` in every place where
// nothing is divided.
struct RowDivision {
  float scale = 1, divisor = 1;
  std::optional<float> instead;
  float lse = 0;  // What Finish returns.
  float lse_rest =
      0;  // What rounding took from `lse` (attention/numerics/wide_lse.h); 0 unless wanted.
};
RowDivision DivisionOf(const RowState& state, const FinishRule& rule);

// Output row = sum / weight, or 0 where nothing was seen. Returns the LSE (−inf where nothing was
// seen, the sink where there is one). Both are NaN for a row that has seen scores of −inf only, and
// has no sink: fp32 cannot tell which of them was the largest. So is an LSE to base 2 below the
// range of fp32.
float Finish(const RowState& state, absl::Span<const float> sum, absl::Span<float> out,
             const FinishRule& rule = {});

// The largest score that the row has seen, the sink left out; −inf where nothing was seen, NaN
// where a NaN was seen, or scores of −inf only.
float MaxLogit(const RowState& state);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_PARTIAL_H_
