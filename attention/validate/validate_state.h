#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_STATE_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_STATE_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/spec/spec.h"

namespace annulus {

// The part of Validate() that checks state. It checks, in this order, options of the other
// operation, the time to keep state (more than 0, at most max_keep), and the name of the state
// used. INVALID_ARGUMENT / INVALID_REQUEST. The coordinator checks that the state exists and fits.
absl::Status CheckState(const AttentionSpec& spec, absl::Duration max_keep);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_STATE_H_
