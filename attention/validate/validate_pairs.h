#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_PAIRS_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_PAIRS_H_

#include "absl/status/status.h"
#include "attention/validate/validate.h"

namespace annulus {

// The part of Validate() that checks bias and bit mask, before the sizes of tensors.
// INVALID_ARGUMENT with SHAPE_MISMATCH, UNSUPPORTED_DTYPE, LIMIT_EXCEEDED or INVALID_MODIFIER.
// Requires: heads and sequences have passed their own checks.
absl::Status CheckPairInputs(const AttentionSpec& spec, const Limits& limits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_PAIRS_H_
