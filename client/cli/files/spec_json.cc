#include "client/cli/files/spec_json.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "client/cli/files/proto_json.h"
#include "google/protobuf/util/json_util.h"

namespace annulus {
namespace {

absl::Status Bad(absl::string_view file, const JsonFault& fault) {
  ErrorDetail detail{"BAD_SPEC", {{"file", std::string(file)}}, {}, {}};
  if (!fault.path.has_value()) {
    return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat(file, ": ", fault.what),
                     detail);
  }
  const std::string& path = *fault.path;
  detail.fields.push_back({absl::StrCat("spec", path.empty() ? "" : ".", path), fault.what});
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(file, ": ", path.empty() ? "the spec" : path, " ", fault.what),
                   detail);
}

}  // namespace

absl::StatusOr<v1::AttentionSpec> ParseSpec(absl::string_view json, absl::string_view file) {
  absl::ConsumePrefix(&json, "\xEF\xBB\xBF");
  const std::optional<JsonFault> fault = FaultOfProtoJson(json, *v1::AttentionSpec::descriptor());
  if (fault.has_value()) return Bad(file, *fault);
  v1::AttentionSpec spec;
  const auto status =
      google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &spec);
  if (!status.ok()) return Bad(file, {std::nullopt, std::string(status.message())});
  return spec;
}

}  // namespace annulus
