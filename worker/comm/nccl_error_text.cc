#include "worker/comm/nccl_error_text.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/error.h"

namespace annulus {
namespace {

bool SaysOneOf(absl::string_view words, std::initializer_list<const char*> known) {
  const std::string said = absl::AsciiStrToLower(words);
  return std::any_of(known.begin(), known.end(),
                     [&](const char* one) { return absl::StrContains(said, one); });
}

}  // namespace

bool IsNcclOutOfMemory(absl::string_view words) {
  return SaysOneOf(words,
                   {"out of memory", "cannot allocate memory", "failed to malloc",
                    "failed to cuda calloc", "failed to cuda malloc", "failed to cuda host alloc"});
}

bool IsNcclHostLimit(absl::string_view words) {
  // A failure to attach to shared memory is not listed: the peer that created the memory may have
  // gone.
  return SaysOneOf(
      words, {"no space left on device", "too many open files", "resource temporarily unavailable",
              "creating shared memory", "create shared memory", "could not map"});
}

absl::Status NcclOutOfMemory(const std::string& text) {
  return MakeError(absl::StatusCode::kResourceExhausted, text, {"OUT_OF_MEMORY", {}, {}, {}});
}

absl::Status NcclHostLimit(const std::string& text) {
  return MakeError(absl::StatusCode::kResourceExhausted, text, {"HOST_LIMIT", {}, {}, {}});
}

}  // namespace annulus
