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

// Whether its inputs may be another call's: then rows of a job whose worker did not take all of
// this call's, or find them equal to what it had, are no answer.
bool MayBeJoined(const v1::RunJobRequest& request);

// Whether its rows may be the answer though its job ended, or its call did, with `error`. So where
// the job was to release a state: it may have, and no later attempt would then have an answer; and
// where it was to keep one and the call broke: AfterLostEnd says more. Not where the error may
// speak against the rows themselves, nor where nothing is lost by sending the job again.
bool StandsUnconfirmed(const AttentionSpec& spec, const absl::Status& error);

// What to do about a job that was to keep its state and whose end was not heard, by what the
// coordinator tells of it. kUse: its rows and its state are what was asked for. Else the job is
// sent again, and this one must not leave a state that nobody knows.
enum class LostEnd { kUse, kRelease, kCancel, kNothing };
LostEnd AfterLostEnd(const v1::Job& job, bool rows_are_here);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_END_H_
