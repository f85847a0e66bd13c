#ifndef ANNULUS_PROTO_WIRE_FIELD_PATHS_H_
#define ANNULUS_PROTO_WIRE_FIELD_PATHS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The same error with other paths for the fields at fault: `path` maps an old path to a new one.
// The message is changed too if it begins with a path, as InvalidField's does.
absl::Status WithFieldPaths(const absl::Status& status,
                            const std::function<std::string(absl::string_view)>& path);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_FIELD_PATHS_H_
