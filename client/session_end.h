#ifndef ANNULUS_CLIENT_SESSION_END_H_
#define ANNULUS_CLIENT_SESSION_END_H_

#include "absl/status/status.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec.h"

namespace annulus {

// When a session whose rows are all here may end, and how. Pure functions.

// Whether it waits for the end of its RunJob call all the same: a request id is free, and a state
// kept or released, only when that one has ended.
bool AwaitsEndOfCall(const v1::RunJobRequest& request, const AttentionSpec& spec);

// Whether its rows are the answer though its job ended, or its call did, with `error`. So where the
// job was to release a state: it may have, and no later attempt would then have an answer. Not
// where the error may speak against the rows themselves, nor where the job can be sent again.
bool StandsUnconfirmed(const AttentionSpec& spec, const absl::Status& error);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_END_H_
