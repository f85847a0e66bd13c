#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_STATE_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_STATE_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/spec/spec.h"

namespace annulus {

// A part of Validate(): options of another operation than the job's, how long a spec wants its
// state kept, and the name of the state that it uses. INVALID_ARGUMENT / INVALID_REQUEST. Whether
// there is such a state, and whether it fits, is the coordinator's question.
absl::Status CheckState(const AttentionSpec& spec, absl::Duration max_keep);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_STATE_H_
