#include "client/cli/answer.h"

#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/output_rows.h"
#include "client/cli/verify/lse_rows.h"

namespace annulus {
namespace {

absl::StatusOr<Verification> Verify(const AttendJob& job, const VerifyOptions& options) {
  Verification verification;
  verification.seed = std::random_device{}();
  // A tensor that the job does not have becomes null.
  std::map<TensorId, const std::byte*> tensors = job.tensors();
  VerifyInput input = {
      tensors[TensorId::kQ],    tensors[TensorId::kK],       tensors[TensorId::kV],
      tensors[TensorId::kOut],  tensors[TensorId::kLse],     tensors[TensorId::kMaxLogit],
      tensors[TensorId::kBias], tensors[TensorId::kBitMask], tensors[TensorId::kLseOffset]};
  input.bf16_partials = options.bf16_partials;
  ASSIGN_OR_RETURN(verification.report,
                   VerifyRows(job.spec(), input, options.rows, verification.seed));
  const VerifyReport& report = *verification.report;
  if (report.within()) return verification;
  return MakeError(
      absl::StatusCode::kDataLoss,
      absl::StrFormat("the answer is wrong: the output of head %d is off by %.3g, %.3g is allowed; "
                      "the LSE error is %.3g times the allowed error",
                      report.worst_head, report.output_error, report.output_budget,
                      report.lse_part),
      {"RESULT_VERIFICATION_FAILED", {{"seed", absl::StrCat(verification.seed)}}, {}, {}});
}

absl::StatusOr<Verification> VerifyGradientsOf(const AttendJob& job, int64_t rows) {
  Verification verification;
  verification.seed = std::random_device{}();
  const std::map<TensorId, const std::byte*> tensors = job.tensors();
  // A synthetic LSE or output is of no forward job.
  if (job.is_from_file()) {
    RETURN_IF_ERROR(CheckLseOfRows(job.spec(), tensors, rows, verification.seed));
    RETURN_IF_ERROR(
        CheckOutputOfRows(job.spec(), tensors, rows, verification.seed, job.MayHaveBf16Partials()));
  }
  const GradientReport report =
      VerifyGradients(job.spec(), tensors, rows, verification.seed,
                      job.is_from_file() ? GivenLse::kJudged : GivenLse::kTaken);
  verification.gradients = report;
  if (report.within()) return verification;
  return MakeError(
      absl::StatusCode::kDataLoss,
      absl::StrFormat("the answer is wrong: %s of head %d is off by %.3g, %.3g is allowed",
                      TensorName(report.worst_tensor), report.worst_head, report.error,
                      report.budget),
      {"RESULT_VERIFICATION_FAILED", {{"seed", absl::StrCat(verification.seed)}}, {}, {}});
}

}  // namespace

absl::StatusOr<std::optional<Verification>> TakeAnswer(const AttendJob& job,
                                                       const VerifyOptions& verify,
                                                       SafetensorsWriter* file) {
  std::optional<Verification> verification;
  // The rows are verified against the inputs. WriteOutputs() checks again.
  RETURN_IF_ERROR(job.CheckInputs());
  if (verify.rows > 0) {
    const bool forward = job.spec().operation == Operation::kForward;
    ASSIGN_OR_RETURN(verification,
                     forward ? Verify(job, verify) : VerifyGradientsOf(job, verify.rows));
  }
  if (file != nullptr) RETURN_IF_ERROR(job.WriteOutputs(file, verify.bf16_partials));
  return verification;
}

}  // namespace annulus
