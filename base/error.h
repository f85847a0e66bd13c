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

// One field of a request that is at fault. `field` is a path in the public proto's own names,
// for example "spec.sequences[2].q_len".
struct FieldViolation {
  std::string field;
  std::string description;
};

// What an error says beside its code and message. On the wire it becomes google.rpc.ErrorInfo
// (domain "annulus.v1"), BadRequest and RetryInfo; inside a process it rides in the status's
// payloads.
struct ErrorDetail {
  // UPPER_SNAKE_CASE, at most 63 characters; the same mistake has the same reason for ever.
  std::string reason;
  // Every dynamic part of the message, by name.
  std::map<std::string, std::string> metadata;
  // At most 16 are kept.
  std::vector<FieldViolation> fields;
  // Present when the same request may succeed after this long.
  std::optional<absl::Duration> retry_after;
};

// A status that carries `detail`. The message is for people; programs read the reason.
absl::Status MakeError(absl::StatusCode code, absl::string_view message, const ErrorDetail& detail);

// INVALID_ARGUMENT with one field at fault, the commonest error: the message is "field:
// description".
absl::Status InvalidField(absl::string_view reason, absl::string_view field,
                          absl::string_view description);

// The detail that MakeError attached; an empty reason when there is none.
ErrorDetail DetailOf(const absl::Status& status);

// What programs read: the reason, or the name of the code ("INTERNAL") where the error has none.
std::string ReasonOrCode(const absl::Status& status);

// What people read, in one line: "CODE / REASON: message".
std::string ErrorText(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_BASE_ERROR_H_
