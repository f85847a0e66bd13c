#ifndef ANNULUS_CLIENT_FILE_ERROR_H_
#define ANNULUS_CLIENT_FILE_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// What the system has just said (errno) of a file: NOT_FOUND / FILE_NOT_FOUND, or its own code /
// FILE_ERROR; metadata: path. `what` cannot be done, as "cannot open".
absl::Status FileError(absl::string_view what, const std::string& path);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_FILE_ERROR_H_
