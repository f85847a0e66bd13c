#include "client/cli/text_file.h"

#include <cstdint>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "attention/error.h"

namespace annulus {
namespace {

constexpr int64_t kMaxBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, absl::string_view reason) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return MakeError(absl::StatusCode::kNotFound, absl::StrCat("cannot open ", path),
                     {"FILE_NOT_FOUND", {{"path", path}}, {}, {}});
  }
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  if (text.size() > kMaxBytes) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(path, " is larger than 64 MiB"),
                     {std::string(reason), {}, {}, {}});
  }
  return text;
}

}  // namespace annulus
