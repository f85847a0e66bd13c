#include "client/cli/flags/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/safetensors/file_error.h"

namespace annulus {
namespace {

constexpr size_t kMaxBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, absl::string_view reason) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path);
  std::string text;
  std::array<char, 64 << 10> piece;
  ssize_t got = 1;
  while (got > 0 && text.size() <= kMaxBytes) {
    got = read(fd, piece.data(), piece.size());
    if (got > 0) text.append(piece.data(), static_cast<size_t>(got));
    if (got < 0 && errno == EINTR) got = 1;
  }
  const absl::Status failed = got < 0 ? FileError("cannot read", path) : absl::OkStatus();
  close(fd);
  RETURN_IF_ERROR(failed);
  if (text.size() > kMaxBytes) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(path, " is larger than 64 MiB"),
                     {std::string(reason), {}, {}, {}});
  }
  return text;
}

}  // namespace annulus
