#ifndef ANNULUS_BASE_ERROR_H_
#define ANNULUS_BASE_ERROR_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace annulus {

// A request field that is at fault. `field` is a path in the names of the public proto, for example
// "spec.sequences[2].q_len".
struct FieldViolation {
  std::string field;
  std::string description;
};

// The detail of an error, besides its code and message. On the wire it is google.rpc.ErrorInfo
// (domain "annulus.v1"), BadRequest and RetryInfo. Inside a process it is a payload of the status.
struct ErrorDetail {
  // UPPER_SNAKE_CASE, at most 63 characters. The reason of a fault never changes.
  std::string reason;
  // Every dynamic part of the message, by name.
  std::map<std::string, std::string> metadata;
  // At most 16 are kept.
  std::vector<FieldViolation> fields;
  // Present if the same request may succeed after this delay.
  std::optional<absl::Duration> retry_after;
};

// A status with `detail`. The message is for people; programs read the reason.
absl::Status MakeError(absl::StatusCode code, absl::string_view message, const ErrorDetail& detail);

// INVALID_ARGUMENT for one field, the most common error. The message is "field: description".
absl::Status InvalidField(absl::string_view reason, absl::string_view field,
                          absl::string_view description);

// The detail that MakeError attached. Its reason is empty if there is none.
ErrorDetail DetailOf(const absl::Status& status);

// The reason, for programs, or the name of the code ("INTERNAL") if there is none.
std::string ReasonOrCode(const absl::Status& status);

// The error as one line for people: "CODE / REASON: message".
std::string ErrorText(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_BASE_ERROR_H_
