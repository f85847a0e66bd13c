#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_ACCUMULATORS_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_ACCUMULATORS_H_

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// True for running sums of gradients. kAdd joins them.
constexpr bool IsGradientSum(BlockKind kind) {
  return kind == BlockKind::kDq || kind == BlockKind::kDkv || kind == BlockKind::kDBias;
}

// True for blocks that tasks add to. They may start as the identity.
constexpr bool IsAccumulator(BlockKind kind) {
  return kind == BlockKind::kPartial || IsGradientSum(kind);
}

// The kind of rows of a block: query rows or key rows.
constexpr RowSpace RowSpaceOf(BlockKind kind) {
  const bool keys = kind == BlockKind::kKv || kind == BlockKind::kDkv || kind == BlockKind::kDkvOut;
  return keys ? RowSpace::kKey : RowSpace::kQuery;
}

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_ACCUMULATORS_H_
