#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_ROW_SET_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_ROW_SET_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "attention/spec/interval.h"

namespace annulus {

// A set of rows: sorted, disjoint, non-adjacent and non-empty intervals.
using RowSet = std::vector<Interval>;

// The set of rows of intervals in any order, which may overlap or be empty.
RowSet MakeRowSet(std::vector<Interval> intervals);
RowSet Union(const RowSet& a, const RowSet& b);
// The rows of `set` that lie in `within`.
RowSet Clip(absl::Span<const Interval> set, Interval within);
int64_t RowsOf(absl::Span<const Interval> set);

// `rows` trimmed to the first and last row for which `sees` is true; empty if there is none.
// Requires: if `sees` is true for an interval, it is true for every larger one. So both ends are
// found by bisection.
Interval TrimTo(absl::FunctionRef<bool(Interval)> sees, Interval rows);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_ROW_SET_H_
