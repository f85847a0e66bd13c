#ifndef ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_
#define ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/types.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace annulus {

// A value in a JSON text.
struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kList, kObject };
  Kind kind = Kind::kNull;
  std::string text;  // For bool, number and string: the text without quotes.
};

// The value for an error message, shortened: `"no"`, `12`, `a list`.
std::string ShownJson(const JsonValue& value);

// The reason why proto3 JSON does not allow a value for the field (or for an element of it, if it
// is repeated): "is \"no\", but must be true or false". Empty if the value is allowed. Not for
// null. Messages other than google.protobuf.Duration must be objects; their members are not
// checked.
std::string FaultOfValue(const google::protobuf::FieldDescriptor& field, const JsonValue& value);

// The field name of the message that is most similar to `name`, in lowerCamelCase. Empty if none is
// similar.
std::string NearestField(const google::protobuf::Descriptor& message, absl::string_view name);

// The first place at which a text is not valid proto3 JSON.
struct JsonFault {
  // The path of the field in the proto's names: "masks[0].causal"; empty: the whole message.
  // Absent: the text is no JSON (RFC 8259).
  std::optional<std::string> path;
  // Follows the path: "is \"no\", but must be true or false". Without a path, it gives line and
  // column.
  std::string what;
};

// Finds the first fault. Stricter than protobuf's parser, which converts values of other types and
// accepts null in lists:
// - a field appears once, in lowerCamelCase or the proto's name
// - a repeated field is a list without null
// - at most one field of a oneof is present
// - null means that the field is absent
//
// For messages without maps and bytes. Duration is the only well-known type supported.
std::optional<JsonFault> FaultOfProtoJson(absl::string_view text,
                                          const google::protobuf::Descriptor& message);

// Parses a request of the C interface in proto3 JSON, by the rules of FaultOfProtoJson.
// INVALID_ARGUMENT / BAD_REQUEST with the field.
absl::Status ParseRequest(absl::string_view json, google::protobuf::Message* request);

// Parses an AttentionSpec in proto3 JSON, by the rules of FaultOfProtoJson. A byte order mark is
// skipped. INVALID_ARGUMENT / BAD_SPEC with `file` (the text's file) and the field.
absl::StatusOr<v1::AttentionSpec> ParseSpec(absl::string_view json, absl::string_view file);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SPEC_JSON_H_
