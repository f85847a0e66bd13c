#ifndef ANNULUS_CLIENT_JSON_SCALARS_H_
#define ANNULUS_CLIENT_JSON_SCALARS_H_

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

}  // namespace annulus

#endif  // ANNULUS_CLIENT_JSON_SCALARS_H_
