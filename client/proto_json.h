#ifndef ANNULUS_CLIENT_PROTO_JSON_H_
#define ANNULUS_CLIENT_PROTO_JSON_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace annulus {

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

#endif  // ANNULUS_CLIENT_PROTO_JSON_H_
