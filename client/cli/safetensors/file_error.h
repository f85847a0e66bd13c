#ifndef ANNULUS_CLIENT_CLI_SAFETENSORS_FILE_ERROR_H_
#define ANNULUS_CLIENT_CLI_SAFETENSORS_FILE_ERROR_H_

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// What the system has just said (errno) of a file: NOT_FOUND / FILE_NOT_FOUND, or its own code /
// FILE_ERROR; metadata: path. `what` cannot be done, as "cannot open".
absl::Status FileError(absl::string_view what, const std::string& path);

// An error of a file's content, with the file in message and metadata ("path"): people do not know
// which was "inputs[1]". Its fields, by their names in the file, are told by `place`, where it has
// one: "inputs[1].lse". OK stays so.
absl::Status InFile(const std::string& path, const absl::Status& status,
                    const std::string& place = "");

// Of what else than a regular file has a path: "a directory", "a pipe", "a socket", "a device".
absl::string_view KindOfFile(mode_t mode);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SAFETENSORS_FILE_ERROR_H_
