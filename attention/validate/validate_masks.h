#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASKS_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASKS_H_

#include "absl/status/status.h"
#include "attention/validate/validate.h"

namespace annulus {

// A part of Validate(): masks one by one, the heads and sequences that follow them, and that none
// is there for nobody. INVALID_ARGUMENT / INVALID_MASK, UNKNOWN_ENUM, LIMIT_EXCEEDED.
absl::Status CheckMasks(const AttentionSpec& spec, const Limits& limits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_MASKS_H_
