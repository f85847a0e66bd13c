#ifndef ANNULUS_CLIENT_CLI_FLAGS_TEXT_FILE_H_
#define ANNULUS_CLIENT_CLI_FLAGS_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Reads a whole file, which may be a pipe. Errors: NOT_FOUND / FILE_NOT_FOUND; the system's code /
// FILE_ERROR, as PERMISSION_DENIED, or FAILED_PRECONDITION for a directory; INVALID_ARGUMENT /
// `reason` for more than 64 MiB, after which it stops reading.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, absl::string_view reason);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_TEXT_FILE_H_
