#include "client/session_end.h"

#include "client/session_errors.h"

namespace annulus {

bool AwaitsEndOfCall(const v1::RunJobRequest& request, const AttentionSpec& spec) {
  return !request.request_id().empty() || spec.keeps_state() || spec.gradients.release_state;
}

bool StandsUnconfirmed(const AttentionSpec& spec, const absl::Status& error) {
  return spec.gradients.release_state && CoordinatorDecides(error);
}

}  // namespace annulus
