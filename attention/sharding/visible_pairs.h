#ifndef ANNULUS_ATTENTION_SHARDING_VISIBLE_PAIRS_H_
#define ANNULUS_ATTENTION_SHARDING_VISIBLE_PAIRS_H_

#include <cstdint>

#include "attention/mask/mask.h"
#include "attention/sharding/row_map.h"

namespace annulus {

// Local rows of a query shard × local rows of a key shard, for one query head.
struct LocalRectangle {
  const RowMap* q_map = nullptr;
  const RowMap* k_map = nullptr;
  Interval q, k;
  int32_t q_head = 0;
};

// Visible (query, key) pairs of the rectangle, exactly. Costs a few look-ups where its rows are
// whole runs, O(query rows) where they are stripes.
int64_t VisiblePairs(const MaskMap& mask, const LocalRectangle& rectangle);

// The same, exact for whole runs of which no more than 64 pairs meet. For more, and where rows are
// stripes: the pairs of the hull in packed rows, scaled by the share of its rows that belong. A few
// look-ups always; integers, so the same on every machine.
int64_t EstimateVisiblePairs(const MaskMap& mask, const LocalRectangle& rectangle);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_VISIBLE_PAIRS_H_
