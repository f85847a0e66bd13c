#ifndef ANNULUS_CLIENT_CLI_FLAGS_TEXT_FILE_H_
#define ANNULUS_CLIENT_CLI_FLAGS_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// What is in a file, which may be a pipe. NOT_FOUND / FILE_NOT_FOUND; other errors of the system /
// FILE_ERROR: PERMISSION_DENIED, FAILED_PRECONDITION of a directory; INVALID_ARGUMENT / `reason`
// for more than 64 MiB, of which no more is read.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, absl::string_view reason);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_TEXT_FILE_H_
