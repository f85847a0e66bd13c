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

// Intervals in any order, overlapping or empty, as a set.
RowSet MakeRowSet(std::vector<Interval> intervals);
RowSet Union(const RowSet& a, const RowSet& b);
// The rows of `set` in `within`.
RowSet Clip(absl::Span<const Interval> set, Interval within);
int64_t RowsOf(absl::Span<const Interval> set);

// `rows` from the first to the last of which `sees` is true; empty where that is none. What is true
// of an interval is true of every larger one, so both ends are found by halving.
Interval TrimTo(absl::FunctionRef<bool(Interval)> sees, Interval rows);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_ROW_SET_H_
