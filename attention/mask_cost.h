#ifndef ANNULUS_ATTENTION_MASK_COST_H_
#define ANNULUS_ATTENTION_MASK_COST_H_

#include <cstdint>

#include "attention/spec.h"

namespace annulus {

// What planning the masks of a spec costs, beside its rows, ranks and sequences. Masks are valid
// one by one and name heads that exist; lengths are at least 0.
struct MaskCost {
  // Sets of query heads with masks of their own. Each is planned for itself.
  int64_t head_classes = 1;
  // Parts that range lists cut the rows of all sequences into (attention/row_pieces.h), for each
  // mask that some head follows there; at least one. What is planned goes through them one by one.
  int64_t range_cuts = 0;
};

// Counts no further than a little past `most_cuts`, in time that is linear in it and in the ranges.
MaskCost CostOfMasks(const AttentionSpec& spec, int64_t most_cuts);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_COST_H_
