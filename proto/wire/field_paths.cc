#include "proto/wire/field_paths.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

absl::Status WithFieldPaths(const absl::Status& status,
                            const std::function<std::string(absl::string_view)>& path) {
  ErrorDetail detail = DetailOf(status);
  if (detail.fields.empty()) return status;
  const std::string first = detail.fields[0].field;
  for (FieldViolation& violation : detail.fields) violation.field = path(violation.field);
  std::string message(status.message());
  if (absl::StartsWith(message, absl::StrCat(first, ": "))) {
    message.replace(0, first.size(), detail.fields[0].field);
  }
  return MakeError(status.code(), message, detail);
}

}  // namespace annulus
