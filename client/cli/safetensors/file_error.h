#ifndef ANNULUS_CLIENT_CLI_SAFETENSORS_FILE_ERROR_H_
#define ANNULUS_CLIENT_CLI_SAFETENSORS_FILE_ERROR_H_

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The error of a system call (errno) on a file: NOT_FOUND / FILE_NOT_FOUND, or the system's code /
// FILE_ERROR. Metadata: path. `what` is the failed action, for example "cannot open".
absl::Status FileError(absl::string_view what, const std::string& path);

// Adds the file's path to the message and metadata ("path") of an error of its content, because
// "inputs[1]" does not identify a file to the user. `place`, for example "inputs[1]", is prepended
// to the error's field paths. Returns OK unchanged.
absl::Status InFile(const std::string& path, const absl::Status& status,
                    const std::string& place = "");

// The kind of a file that is not regular: "a directory", "a pipe", "a socket", "a device".
absl::string_view KindOfFile(mode_t mode);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SAFETENSORS_FILE_ERROR_H_
