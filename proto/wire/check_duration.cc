#include "proto/wire/check_duration.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"

namespace annulus {

absl::Status CheckDuration(const google::protobuf::Duration& duration, absl::string_view field,
                           absl::Duration max) {
  RETURN_IF_ERROR(CheckFieldsKnown(duration, field));
  const absl::Duration value = DurationFromProto(duration);
  if (value > absl::ZeroDuration() && value <= max) return absl::OkStatus();
  if (max == absl::InfiniteDuration()) {
    return InvalidField("INVALID_REQUEST", field, "must be more than 0 s");
  }
  return InvalidField(
      "INVALID_REQUEST", field,
      absl::StrCat("must be more than 0 s and at most ", absl::FormatDuration(max)));
}

}  // namespace annulus
