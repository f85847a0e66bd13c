#include "client/session_errors.h"

#include <string>

#include "attention/error.h"

namespace annulus {

bool CoordinatorDecides(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDeadlineExceeded:
      return true;
    default:
      return false;
  }
}

absl::Status WithReason(const absl::Status& status, absl::string_view reason) {
  ErrorDetail detail = DetailOf(status);
  if (!detail.reason.empty()) return status;
  detail.reason = std::string(reason);
  return MakeError(status.code(), status.message(), detail);
}

}  // namespace annulus
