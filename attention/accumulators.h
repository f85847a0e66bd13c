#ifndef ANNULUS_ATTENTION_ACCUMULATORS_H_
#define ANNULUS_ATTENTION_ACCUMULATORS_H_

#include "attention/schedule_data.h"

namespace annulus {

// Running sums of gradients, which kAdd joins.
constexpr bool IsGradientSum(BlockKind kind) {
  return kind == BlockKind::kDq || kind == BlockKind::kDkv || kind == BlockKind::kDBias;
}

// What tasks add to, and what may start as the identity.
constexpr bool IsAccumulator(BlockKind kind) {
  return kind == BlockKind::kPartial || IsGradientSum(kind);
}

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_ACCUMULATORS_H_
