#ifndef ANNULUS_CLIENT_CLI_FILES_PROTO_JSON_H_
#define ANNULUS_CLIENT_CLI_FILES_PROTO_JSON_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace annulus {

// A value of a JSON text.
struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kList, kObject };
  Kind kind = Kind::kNull;
  std::string text;  // Of bool, number and string: what is said, without quotes.
};

// As an error message may quote it, cut where it is long: `"no"`, `12`, `a list`.
std::string ShownJson(const JsonValue& value);

// What proto3 JSON does not allow of a value of the field, or of an element of it where it is
// repeated: "is \"no\", but must be true or false". Empty: nothing. Not for null; messages but
// google.protobuf.Duration are objects, whose members are not looked at.
std::string FaultOfValue(const google::protobuf::FieldDescriptor& field, const JsonValue& value);

// The one of the field names of a message that is spelled nearest to `name`, in lowerCamelCase;
// empty where none is near.
std::string NearestField(const google::protobuf::Descriptor& message, absl::string_view name);

// Where a text is no message as proto3 JSON.
struct JsonFault {
  // Of the message, in the proto's own names: "masks[0].causal"; empty: the whole. Absent: the text
  // is no JSON as RFC 8259 has it.
  std::optional<std::string> path;
  // After the path: "is \"no\", but must be true or false". Without one it says line and column.
  std::string what;
};

// The first fault. Stricter than protobuf's own parser, which guesses at values of other types and
// takes null as an element of a list: fields are named once, in lowerCamelCase or as the proto has
// it, repeated ones are lists without null, at most one of a oneof is there; null for a field means
// that it is absent. For messages without maps and bytes, and of the well-known types with Duration
// alone.
std::optional<JsonFault> FaultOfProtoJson(absl::string_view text,
                                          const google::protobuf::Descriptor& message);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_PROTO_JSON_H_
