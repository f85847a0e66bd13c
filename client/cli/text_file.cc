#include "client/cli/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "client/file_error.h"

namespace annulus {
namespace {

constexpr size_t kMaxBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, absl::string_view reason) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path);
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  ssize_t got = 1;
  while (got > 0 && size < text.size()) {
    got = read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got > 0)
      size += static_cast<size_t>(got);
  }
  const absl::Status failed = got < 0 ? FileError("cannot read", path) : absl::OkStatus();
  close(fd);
  RETURN_IF_ERROR(failed);
  text.resize(size);
  if (text.size() > kMaxBytes) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(path, " is larger than 64 MiB"),
                     {std::string(reason), {}, {}, {}});
  }
  return text;
}

}  // namespace annulus
