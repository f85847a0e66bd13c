#include "client/file_error.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "attention/error.h"

namespace annulus {

absl::Status FileError(absl::string_view what, const std::string& path) {
  const int error = errno;
  const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
  return MakeError(status.code(), status.message(),
                   {error == ENOENT ? "FILE_NOT_FOUND" : "FILE_ERROR", {{"path", path}}, {}, {}});
}

}  // namespace annulus
