#include "attention/sharding/visible_pairs.h"

#include <algorithm>

namespace annulus {
namespace {

// Up to this many pairs of a query run and a key run are summed one by one.
constexpr int64_t kFewRunPairs = 64;

int64_t RunsOf(const RowMap& map, Interval local) {
  int64_t runs = 0;
  map.ForEachRun(local, [&](int64_t, int64_t, int64_t) { ++runs; });
  return runs;
}

int64_t SumRuns(const MaskMap& mask, const LocalRectangle& r) {
  int64_t pairs = 0;
  r.q_map->ForEachRun(r.q, [&](int64_t, int64_t q_row, int64_t q_count) {
    r.k_map->ForEachRun(r.k, [&](int64_t, int64_t k_row, int64_t k_count) {
      pairs += mask.Area(r.q_head, {q_row, q_row + q_count}, {k_row, k_row + k_count});
    });
  });
  return pairs;
}

int64_t SumRows(const MaskMap& mask, const LocalRectangle& r) {
  int64_t pairs = 0;
  r.q_map->ForEachRun(r.q, [&](int64_t, int64_t q_row, int64_t q_count) {
    for (int64_t row = q_row; row < q_row + q_count; ++row) {
      for (const Interval& seen : mask.VisiblePacked(r.q_head, row)) {
        const Interval local = r.k_map->Local(seen);
        pairs +=
            std::max<int64_t>(0, std::min(local.end, r.k.end) - std::max(local.begin, r.k.begin));
      }
    }
  });
  return pairs;
}

// True if ForEachRun is cheap: no stripes and few ranges.
bool FewRanges(const LocalRectangle& r) {
  const auto plain = [](const RowMap& map) {
    return std::all_of(map.ranges().begin(), map.ranges().end(),
                       [](const RowRange& range) { return range.count <= kFewRunPairs; });
  };
  return plain(*r.q_map) && plain(*r.k_map) &&
         RunsOf(*r.q_map, r.q) * RunsOf(*r.k_map, r.k) <= kFewRunPairs;
}

}  // namespace

int64_t VisiblePairs(const MaskMap& mask, const LocalRectangle& rectangle) {
  if (rectangle.q.length() == 0 || rectangle.k.length() == 0) return 0;
  return FewRanges(rectangle) ? SumRuns(mask, rectangle) : SumRows(mask, rectangle);
}

int64_t EstimateVisiblePairs(const MaskMap& mask, const LocalRectangle& r) {
  if (r.q.length() == 0 || r.k.length() == 0) return 0;
  if (FewRanges(r)) return SumRuns(mask, r);
  const Interval q = r.q_map->Hull(r.q), k = r.k_map->Hull(r.k);
  __int128 pairs = mask.Area(r.q_head, q, k);
  pairs = pairs * r.q.length() / q.length();
  pairs = pairs * r.k.length() / k.length();
  return static_cast<int64_t>(pairs);
}

}  // namespace annulus
