#ifndef ANNULUS_ATTENTION_SHARDING_VISIBLE_PAIRS_H_
#define ANNULUS_ATTENTION_SHARDING_VISIBLE_PAIRS_H_

#include <cstdint>

#include "attention/mask/mask.h"
#include "attention/sharding/row_map.h"

namespace annulus {

// A rectangle of local query rows `q` × local key rows `k` of two shards, for one query head. Does
// not own the maps.
struct LocalRectangle {
  const RowMap* q_map = nullptr;
  const RowMap* k_map = nullptr;
  Interval q, k;
  int32_t q_head = 0;
};

// The exact number of visible (query, key) pairs of the rectangle. Costs a few look-ups if its rows
// are few whole runs, and O(query rows) otherwise.
int64_t VisiblePairs(const MaskMap& mask, const LocalRectangle& rectangle);

// VisiblePairs for planning, always with a few look-ups. Exact if the rows are whole runs that meet
// in at most 64 pairs of runs. Otherwise: the pairs of the hull in packed rows, scaled by the
// fraction of the hull's rows that belong to the rectangle. Integer arithmetic, so every machine
// gets the same number.
int64_t EstimateVisiblePairs(const MaskMap& mask, const LocalRectangle& rectangle);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_VISIBLE_PAIRS_H_
