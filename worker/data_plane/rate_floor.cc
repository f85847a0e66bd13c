#include "worker/data_plane/rate_floor.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

absl::Status StallError(absl::string_view reason, absl::string_view what,
                        const RateLimits& limits) {
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat("the ", what, " is slower than ", limits.floor_bytes_per_second,
                                " bytes per second"),
                   {std::string(reason),
                    {{"floor_bytes_per_second", absl::StrCat(limits.floor_bytes_per_second)},
                     {"window", absl::FormatDuration(limits.window)}},
                    {},
                    {}});
}

}  // namespace annulus
