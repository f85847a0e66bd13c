#ifndef ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_
#define ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/types.pb.h"

namespace annulus {

// An AttentionSpec as proto3 JSON. INVALID_ARGUMENT / BAD_SPEC names `file`, whose text it is, and
// the field; by the rules of client/cli/files/proto_json.h. A byte order mark before it is passed
// over.
absl::StatusOr<v1::AttentionSpec> ParseSpec(absl::string_view json, absl::string_view file);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_
