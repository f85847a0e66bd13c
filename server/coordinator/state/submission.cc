#include "server/coordinator/state/submission.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/spec/shared_by_state.h"
#include "attention/validate/capability.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/check_duration.h"
#include "proto/wire/convert.h"
#include "proto/wire/sha256.h"

namespace annulus {
namespace {

constexpr size_t kMaxRequestId = 64;

absl::Status CheckRequestId(absl::string_view id) {
  if (id.size() > kMaxRequestId) {
    return InvalidField("INVALID_REQUEST", "request_id",
                        absl::StrCat("must have at most ", kMaxRequestId, " characters"));
  }
  for (char c : id) {
    if (c <= 0x20 || c >= 0x7f) {
      return InvalidField("INVALID_REQUEST", "request_id",
                          "must be printable ASCII without spaces");
    }
  }
  return absl::OkStatus();
}

int64_t BytesOf(const Submission& submission) {
  size_t bytes = sizeof(Submission) + submission.request.SpaceUsedLong() +
                 submission.spec_bytes->size() +
                 submission.spec.sequences.size() * sizeof(Sequence);
  for (const Sequence& sequence : submission.spec.sequences) bytes += sequence.session.size();
  for (const Mask& mask : submission.spec.masks) {
    bytes += sizeof(Mask) + mask.ranges.size() * sizeof(MaskRange) + mask.query_heads.size() * 8;
  }
  return static_cast<int64_t>(bytes);
}

// Equal messages without maps and unknown fields have equal bytes.
std::string FingerprintOf(const Submission& submission) {
  if (submission.request.request_id().empty()) return "";
  std::string text(1, submission.request.detached() ? 'd' : 'b');
  submission.request.execution().AppendToString(&text);
  return Sha256(absl::StrCat(text, Sha256(text), *submission.spec_bytes));
}

// Defaults are written out.
std::string StateFingerprintOf(const AttentionSpec& wanted) {
  if (!wanted.keeps_state() && !wanted.uses_state()) return "";
  AttentionSpec spec = SharedByState(wanted);
  spec.head_dim_v = spec.value_dim();
  spec.out_dtype = spec.output_dtype();
  spec.scale = spec.scale_or_default();
  if (spec.modifiers.bias) spec.modifiers.bias->dtype = spec.bias_dtype();
  return Sha256(SpecToProto(spec).SerializeAsString());
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Submission>> MakeSubmission(
    v1::RunJobRequest request, const CoordinatorOptions& options) {
  RETURN_IF_ERROR(CheckFieldsKnown(request, ""));
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  if (request.has_timeout()) {
    RETURN_IF_ERROR(CheckDuration(request.timeout(), "timeout", options.max_timeout));
  }
  if (request.has_result_ttl()) {
    RETURN_IF_ERROR(CheckDuration(request.result_ttl(), "result_ttl", options.max_result_ttl));
  }
  if (request.has_result_ttl() && !request.detached()) {
    return InvalidField("INVALID_REQUEST", "result_ttl",
                        "needs detached: only the outputs of detached jobs are kept");
  }
  auto submission = std::make_shared<Submission>();
  ASSIGN_OR_RETURN(submission->spec, SpecFromProto(request.spec(), "spec"));
  ASSIGN_OR_RETURN(submission->execution, ExecutionFromProto(request.execution(), "execution"));
  RETURN_IF_ERROR(Validate(submission->spec, submission->execution, options.limits));
  for (const Capability& used : FeaturesOf(submission->spec, submission->execution)) {
    submission->features.insert(used.feature);
  }
  submission->shape = PlanShapeOf(submission->spec);
  submission->request = std::move(request);
  submission->spec_bytes =
      std::make_shared<const std::string>(submission->request.spec().SerializeAsString());
  submission->bytes = BytesOf(*submission);
  submission->fingerprint = FingerprintOf(*submission);
  submission->state_fingerprint = StateFingerprintOf(submission->spec);
  return submission;
}

bool SameJob(const Submission& a, const Submission& b) {
  return !a.fingerprint.empty() && a.fingerprint == b.fingerprint;
}

}  // namespace annulus
