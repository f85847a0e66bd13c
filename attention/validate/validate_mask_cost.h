#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASK_COST_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASK_COST_H_

#include "absl/status/status.h"
#include "attention/validate/validate.h"

namespace annulus {

// The part of Validate() that bounds the cost of planning. INVALID_ARGUMENT / LIMIT_EXCEEDED, in
// this order: classes of heads, row intervals, chunks, spans and rank pairs under stripes, cuts of
// range lists. Chunks, spans and cuts count in each sequence that follows the mask. Requires:
// masks, lengths and the execution's enums have passed their own checks.
absl::Status CheckMaskCost(const AttentionSpec& spec, const Execution& execution,
                           const Limits& limits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASK_COST_H_
