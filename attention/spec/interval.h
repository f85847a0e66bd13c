#ifndef ANNULUS_ATTENTION_SPEC_INTERVAL_H_
#define ANNULUS_ATTENTION_SPEC_INTERVAL_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace annulus {

// Rows [begin, end); empty if end <= begin.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t length() const { return end > begin ? end - begin : 0; }
  friend bool operator==(const Interval& a, const Interval& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

// Sorted, disjoint, non-adjacent and non-empty, unless stated otherwise.
using Intervals = absl::InlinedVector<Interval, 2>;

inline Interval Intersect(Interval a, Interval b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// An interval of keys that consecutive rows see. `keys` is that of the first row. From each row to
// the next, either end is fixed (step 0) or moves by one (step 1).
struct Sweep {
  Interval keys;
  int64_t begin_step = 0, end_step = 0;
  // The interval of the row `skip` rows after the first.
  Interval At(int64_t skip) const {
    return {keys.begin + begin_step * skip, keys.end + end_step * skip};
  }
};
using MovingIntervals = absl::InlinedVector<Sweep, 2>;

// The sweeps of consecutive rows, from the intervals of the first and the last row. Requires: all
// rows see the same number of intervals.
inline MovingIntervals SweepsBetween(const Intervals& first, const Intervals& last) {
  MovingIntervals sweeps;
  for (size_t i = 0; i < first.size(); ++i) {
    sweeps.push_back(
        {first[i], last[i].begin == first[i].begin ? 0 : 1, last[i].end == first[i].end ? 0 : 1});
  }
  return sweeps;
}

// Makes a set of intervals in any order, which may overlap or be empty: sorted, disjoint,
// non-adjacent, non-empty.
template <typename List>
List Normalized(List intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  List set;
  for (const Interval& next : intervals) {
    if (next.length() == 0) continue;
    if (!set.empty() && next.begin <= set.back().end) {
      set.back().end = std::max(set.back().end, next.end);
    } else {
      set.push_back(next);
    }
  }
  return set;
}

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_INTERVAL_H_
