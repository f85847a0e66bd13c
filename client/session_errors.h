#ifndef ANNULUS_CLIENT_SESSION_ERRORS_H_
#define ANNULUS_CLIENT_SESSION_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Whether an error of a worker's stream may only mean that the worker, or the attempt, is gone:
// then the coordinator knows what becomes of the job. Any other error is the answer.
bool CoordinatorDecides(const absl::Status& status);

// The status with `reason` where it has none: statuses that the gRPC library makes by itself.
absl::Status WithReason(const absl::Status& status, absl::string_view reason);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_ERRORS_H_
