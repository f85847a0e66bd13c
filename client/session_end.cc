#include "client/session_end.h"

#include "client/session_errors.h"

namespace annulus {

bool AwaitsEndOfCall(const v1::RunJobRequest& request, const AttentionSpec& spec) {
  return !request.request_id().empty() || spec.keeps_state() || spec.gradients.release_state;
}

bool MayBeJoined(const v1::RunJobRequest& request) { return !request.request_id().empty(); }

bool StandsUnconfirmed(const AttentionSpec& spec, const absl::Status& error) {
  if (spec.keeps_state()) return absl::IsUnavailable(error);
  return spec.gradients.release_state && CoordinatorDecides(error);
}

LostEnd AfterLostEnd(const v1::Job& job, bool rows_are_here) {
  if (job.state() < v1::Job::STATE_SUCCEEDED) return LostEnd::kCancel;
  if (job.kept_state().status() != v1::KeptState::STATUS_HELD) return LostEnd::kNothing;
  return rows_are_here ? LostEnd::kUse : LostEnd::kRelease;
}

}  // namespace annulus
