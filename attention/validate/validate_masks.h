#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASKS_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASKS_H_

#include "absl/status/status.h"
#include "attention/validate/validate.h"

namespace annulus {

// The part of Validate() that checks masks. It checks, in this order, their number, each mask by
// itself, the heads that masks name, the masks that sequences name, and that each group is used.
// INVALID_ARGUMENT with LIMIT_EXCEEDED, UNKNOWN_ENUM or INVALID_MASK. Requires: `spec.q_heads` is
// valid.
absl::Status CheckMasks(const AttentionSpec& spec, const Limits& limits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASKS_H_
