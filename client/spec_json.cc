#include "client/spec_json.h"

#include <cstddef>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "client/json_names.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

using Json = nlohmann::json;

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("not an AttentionSpec as proto3 JSON: ", what),
                   {"BAD_SPEC", {}, {}, {}});
}

// Protobuf's parser adds up lists that are named twice, and of other fields takes the last.
absl::Status CheckEachNameOnce(const std::string& json) {
  JsonNames names(std::numeric_limits<size_t>::max(), [](const std::string& name) {
    return absl::AsciiStrToLower(
        absl::StrReplaceAll(name, {{"_", ""}}));  // "windowLeft" is "window_left".
  });
  const Json::parser_callback_t callback = [&](int depth, Json::parse_event_t event, Json& value) {
    names.Take(depth, event, value);
    return event != Json::parse_event_t::value;  // None is kept.
  };
  if (!json.empty() && Json::parse(json, callback, /*allow_exceptions=*/false).is_discarded()) {
    return Bad("it is not JSON as RFC 8259 has it");
  }
  if (!names.twice().has_value()) return absl::OkStatus();
  return Bad(absl::StrCat("an object names \"", absl::Utf8SafeCEscape(*names.twice()), "\" twice"));
}

}  // namespace

absl::StatusOr<v1::AttentionSpec> ParseSpec(const std::string& json) {
  v1::AttentionSpec spec;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &spec);
  if (!status.ok()) return Bad(std::string(status.message()));
  RETURN_IF_ERROR(CheckEachNameOnce(json));
  return spec;
}

}  // namespace annulus
