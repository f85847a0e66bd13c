#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_PAIRS_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_PAIRS_H_

#include "absl/status/status.h"
#include "attention/validate/validate.h"

namespace annulus {

// The part of Validate that checks bias and bit mask, before their tensors are counted. Heads and
// sequences are valid one by one.
absl::Status CheckPairInputs(const AttentionSpec& spec, const Limits& limits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_PAIRS_H_
