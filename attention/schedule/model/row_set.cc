#include "attention/schedule/model/row_set.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

// The smallest n in [1, most] for which `holds` is true. Requires: `holds` is true for `most`, and
// for every n above one for which it is true.
int64_t Fewest(int64_t most, absl::FunctionRef<bool(int64_t)> holds) {
  if (holds(1)) return 1;
  int64_t low = 1, high = most;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

RowSet MakeRowSet(std::vector<Interval> intervals) { return Normalized(std::move(intervals)); }

RowSet Union(const RowSet& a, const RowSet& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  std::vector<Interval> all(a);
  all.insert(all.end(), b.begin(), b.end());
  return MakeRowSet(std::move(all));
}

RowSet Clip(absl::Span<const Interval> set, Interval within) {
  RowSet clipped;
  const Interval* first = std::partition_point(
      set.begin(), set.end(), [&](const Interval& i) { return i.end <= within.begin; });
  for (const Interval* i = first; i != set.end() && i->begin < within.end; ++i) {
    const Interval both = Intersect(*i, within);
    if (both.length() > 0) clipped.push_back(both);
  }
  return clipped;
}

int64_t RowsOf(absl::Span<const Interval> set) {
  int64_t rows = 0;
  for (const Interval& interval : set) rows += interval.length();
  return rows;
}

Interval TrimTo(absl::FunctionRef<bool(Interval)> sees, Interval rows) {
  if (rows.length() == 0 || !sees(rows)) return {};
  rows.begin += Fewest(rows.length(),
                       [&](int64_t n) {
                         return sees({rows.begin, rows.begin + n});
                       }) -
                1;
  rows.end -= Fewest(rows.length(), [&](int64_t n) { return sees({rows.end - n, rows.end}); }) - 1;
  return rows;
}

}  // namespace annulus
