#ifndef ANNULUS_TESTS_CLIENT_FAKE_ERRORS_H_
#define ANNULUS_TESTS_CLIENT_FAKE_ERRORS_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/error.h"
#include "proto/wire/status.h"
#include "tests/client/fake_service.h"

namespace annulus {

// Errors of a FakeService's calls.

inline grpc::Status Error(absl::StatusCode code, const std::string& reason,
                          std::optional<absl::Duration> retry_after = std::nullopt) {
  return ToGrpcStatus(MakeError(code, reason, {reason, {}, {}, retry_after}));
}

inline grpc::Status Gone() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"); }

// The error of a job before it is placed; otherwise OK.
inline grpc::Status RefusalOf(FakeService::Act act) {
  using Act = FakeService::Act;
  if (act == Act::kQueueFull) {
    return Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", absl::Milliseconds(20));
  }
  if (act == Act::kRestarted) {
    return Error(absl::StatusCode::kUnavailable, "STARTING", absl::Minutes(5));
  }
  if (act == Act::kStateGone) return Error(absl::StatusCode::kNotFound, "STATE_LOST");
  if (act == Act::kReleased) return Error(absl::StatusCode::kNotFound, "STATE_RELEASED");
  return grpc::Status::OK;
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_FAKE_ERRORS_H_
