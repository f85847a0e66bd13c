#ifndef ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_
#define ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/types.pb.h"

namespace annulus {

// Parses an AttentionSpec in proto3 JSON, by the rules of client/cli/files/proto_json.h. A byte
// order mark is skipped. INVALID_ARGUMENT / BAD_SPEC with `file` (the text's file) and the field.
absl::StatusOr<v1::AttentionSpec> ParseSpec(absl::string_view json, absl::string_view file);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_
