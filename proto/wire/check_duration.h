#ifndef ANNULUS_PROTO_WIRE_CHECK_DURATION_H_
#define ANNULUS_PROTO_WIRE_CHECK_DURATION_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"

namespace annulus {

// Checks the duration in `field` of a request. INVALID_ARGUMENT / UNKNOWN_FIELD if it has an
// unknown field; INVALID_REQUEST unless it is more than 0 and at most `max`.
absl::Status CheckDuration(const google::protobuf::Duration& duration, absl::string_view field,
                           absl::Duration max);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_CHECK_DURATION_H_
