#include "client/cli/state_release.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

std::string ReleaseUsed(const std::string& job_id, const ReleaseCall& release) {
  const absl::Status released = release(job_id);
  return released.ok() || absl::IsNotFound(released) ? "" : ErrorText(released);
}

absl::Status ReleaseUnasked(const std::string& job_id, const absl::Status& error,
                            const ReleaseCall& release) {
  const std::string unconfirmed = ReleaseUsed(job_id, release);
  if (unconfirmed.empty()) return error;
  ErrorDetail detail = DetailOf(error);
  detail.metadata["job_id"] = job_id;
  return MakeError(error.code(),
                   absl::StrCat(error.message(), "; job ", job_id, " may still keep its state (",
                                unconfirmed, ")"),
                   detail);
}

}  // namespace annulus
