#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_ACCUMULATORS_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_ACCUMULATORS_H_

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Running sums of gradients, which kAdd joins.
constexpr bool IsGradientSum(BlockKind kind) {
  return kind == BlockKind::kDq || kind == BlockKind::kDkv || kind == BlockKind::kDBias;
}

// What tasks add to, and what may start as the identity.
constexpr bool IsAccumulator(BlockKind kind) {
  return kind == BlockKind::kPartial || IsGradientSum(kind);
}

// Whose rows a block's are.
constexpr RowSpace RowSpaceOf(BlockKind kind) {
  const bool keys = kind == BlockKind::kKv || kind == BlockKind::kDkv || kind == BlockKind::kDkvOut;
  return keys ? RowSpace::kKey : RowSpace::kQuery;
}

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_ACCUMULATORS_H_
