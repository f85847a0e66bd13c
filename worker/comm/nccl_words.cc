#include "worker/comm/nccl_words.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "attention/error.h"

namespace annulus {

bool NcclSaysOutOfMemory(absl::string_view words) {
  const std::string said = absl::AsciiStrToLower(words);
  for (const char* refused :
       {"out of memory", "cannot allocate memory", "failed to malloc", "failed to cuda calloc",
        "failed to cuda malloc", "failed to cuda host alloc"}) {
    if (absl::StrContains(said, refused)) return true;
  }
  return false;
}

absl::Status NcclOutOfMemory(const std::string& text) {
  return MakeError(absl::StatusCode::kResourceExhausted, text, {"OUT_OF_MEMORY", {}, {}, {}});
}

}  // namespace annulus
