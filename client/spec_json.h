#ifndef ANNULUS_CLIENT_SPEC_JSON_H_
#define ANNULUS_CLIENT_SPEC_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "annulus/v1/types.pb.h"

namespace annulus {

// An AttentionSpec as proto3 JSON. INVALID_ARGUMENT / BAD_SPEC, also for unknown fields, for what
// is no JSON as RFC 8259 has it, and for an object that names a field twice, in either spelling.
absl::StatusOr<v1::AttentionSpec> ParseSpec(const std::string& json);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SPEC_JSON_H_
