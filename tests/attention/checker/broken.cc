#include "tests/attention/checker/broken.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

absl::Status Broken(int32_t rank, int32_t step, absl::string_view rule) {
  ErrorDetail detail;
  detail.reason = "SCHEDULE_BROKEN";
  detail.metadata["rank"] = absl::StrCat(rank);
  if (step >= 0) detail.metadata["step"] = absl::StrCat(step);
  detail.metadata["rule"] = std::string(rule);
  const std::string where =
      step >= 0 ? absl::StrCat("rank ", rank, ", step ", step) : absl::StrCat("rank ", rank);
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("broken schedule: ", where, ": ", rule), detail);
}

}  // namespace annulus
