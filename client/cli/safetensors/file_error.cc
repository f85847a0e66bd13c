#include "client/cli/safetensors/file_error.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

absl::Status FileError(absl::string_view what, const std::string& path) {
  const int error = errno;
  const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
  return MakeError(status.code(), status.message(),
                   {error == ENOENT ? "FILE_NOT_FOUND" : "FILE_ERROR", {{"path", path}}, {}, {}});
}

absl::Status InFile(const std::string& path, const absl::Status& status, const std::string& place) {
  if (status.ok()) return status;
  ErrorDetail detail = DetailOf(status);
  detail.metadata["path"] = path;
  for (FieldViolation& each : detail.fields) {
    const bool both = !place.empty() && !each.field.empty();
    each.field = absl::StrCat(place, both ? "." : "", each.field);
  }
  return MakeError(status.code(), absl::StrCat(path, ": ", status.message()), detail);
}

absl::string_view KindOfFile(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

}  // namespace annulus
