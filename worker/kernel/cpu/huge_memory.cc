#include "worker/kernel/cpu/huge_memory.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

absl::Status HugeMemory::Reserve(int64_t bytes, absl::string_view what) {
  if (bytes <= bytes_) return absl::OkStatus();
  memory_.reset();
  bytes_ = 0;
  const int64_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  memory_.reset(static_cast<float*>(std::aligned_alloc(kHugePage, whole)));
  if (memory_ == nullptr) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     absl::StrCat("no memory for ", whole, " bytes of ", what),
                     {"OUT_OF_MEMORY", {{"requested_bytes", absl::StrCat(whole)}}, {}, {}});
  }
  madvise(memory_.get(), whole, MADV_HUGEPAGE);  // Only advice: small pages work too.
  bytes_ = whole;
  return absl::OkStatus();
}

}  // namespace annulus
