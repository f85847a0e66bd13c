#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASK_COST_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASK_COST_H_

#include "absl/status/status.h"
#include "attention/validate/validate.h"

namespace annulus {

// The part of Validate that bounds what planning costs: LIMIT_EXCEEDED for chunks, spans and
// sequences under stripes, classes of heads and cuts of range lists, each of the sequences that
// follow the mask. Masks, lengths and the execution's enums are valid one by one.
absl::Status CheckMaskCost(const AttentionSpec& spec, const Execution& execution,
                           const Limits& limits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASK_COST_H_
