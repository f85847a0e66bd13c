#ifndef ANNULUS_ATTENTION_SPEC_LIMITS_H_
#define ANNULUS_ATTENTION_SPEC_LIMITS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"

namespace annulus {

// INVALID_ARGUMENT / LIMIT_EXCEEDED at `field` if requested > limit (metadata: requested, limit).
inline absl::Status CheckLimit(absl::string_view field, int64_t requested, int64_t limit) {
  if (requested <= limit) return absl::OkStatus();
  ErrorDetail detail;
  detail.reason = "LIMIT_EXCEEDED";
  detail.metadata = {{"requested", absl::StrCat(requested)}, {"limit", absl::StrCat(limit)}};
  const std::string description = absl::StrCat(requested, " is above the limit of ", limit);
  detail.fields.push_back({std::string(field), description});
  return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat(field, ": ", description),
                   detail);
}

// INVALID_ARGUMENT / `reason` at `field`, which must not have `value` (metadata: value). `must`
// completes the sentence "is VALUE, but ...".
template <typename Value>
absl::Status RefuseValue(absl::string_view reason, absl::string_view field, Value value,
                         absl::string_view must) {
  ErrorDetail detail;
  detail.reason = std::string(reason);
  detail.metadata["value"] = absl::StrCat(value);
  const std::string description = absl::StrCat("is ", value, ", but ", must);
  detail.fields.push_back({std::string(field), description});
  return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat(field, ": ", description),
                   detail);
}

// INVALID_ARGUMENT / UNKNOWN_ENUM at `field` if value > last.
template <typename Enum>
absl::Status CheckEnum(absl::string_view field, Enum value, Enum last) {
  if (value <= last) return absl::OkStatus();
  return RefuseValue("UNKNOWN_ENUM", field, static_cast<int>(value), "must be a known value");
}

// INVALID_ARGUMENT / `reason` at `field` if value < least.
inline absl::Status CheckAtLeast(absl::string_view reason, absl::string_view field, int64_t value,
                                 int64_t least) {
  if (value >= least) return absl::OkStatus();
  return RefuseValue(reason, field, value, absl::StrCat("must be at least ", least));
}

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_LIMITS_H_
