#include "attention/validate/validate_state.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMaxName = 64;

// On the wire a job has only one of the two.
absl::Status CheckOperation(const AttentionSpec& spec) {
  const auto refuse = [](absl::string_view field, absl::string_view operation) {
    return InvalidField("INVALID_REQUEST", field, absl::StrCat("is for ", operation, " jobs only"));
  };
  if (spec.operation != Operation::kForward) {
    return spec.forward.keep_state ? refuse("spec.forward.keep_state", "forward")
                                   : absl::OkStatus();
  }
  const GradientOptions& gradients = spec.gradients;
  if (gradients.d_lse) return refuse("spec.gradients.d_lse", "gradients");
  if (gradients.d_bias) return refuse("spec.gradients.d_bias", "gradients");
  if (gradients.d_out_dtype != DataType::kUnspecified)
    return refuse("spec.gradients.d_out_dtype", "gradients");
  if (!gradients.state.empty()) return refuse("spec.gradients.state", "gradients");
  if (gradients.release_state) return refuse("spec.gradients.release_state", "gradients");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckState(const AttentionSpec& spec, absl::Duration max_keep) {
  RETURN_IF_ERROR(CheckOperation(spec));
  const absl::Duration keep = spec.forward.keep_state.value_or(max_keep);
  if (spec.keeps_state() && (keep <= absl::ZeroDuration() || keep > max_keep)) {
    return InvalidField(
        "INVALID_REQUEST", "spec.forward.keep_state",
        absl::StrCat("must be more than 0 s and at most ", absl::FormatDuration(max_keep)));
  }
  if (spec.keeps_state() && spec.outputs.lse_base != LseBase::kE) {
    return InvalidField("INVALID_REQUEST", "spec.forward.keep_state",
                        "needs lse_base e: gradients take the natural-log LSE only");
  }
  const std::string& state = spec.gradients.state;
  if (state.size() > kMaxName) {
    return InvalidField("INVALID_REQUEST", "spec.gradients.state",
                        absl::StrCat("must have at most ", kMaxName, " characters"));
  }
  if (std::any_of(state.begin(), state.end(), [](char c) { return c <= 0x20 || c >= 0x7f; })) {
    return InvalidField("INVALID_REQUEST", "spec.gradients.state",
                        "must be printable ASCII without spaces");
  }
  if (spec.gradients.release_state && state.empty()) {
    return InvalidField("INVALID_REQUEST", "spec.gradients.release_state",
                        "needs spec.gradients.state");
  }
  return absl::OkStatus();
}

}  // namespace annulus
