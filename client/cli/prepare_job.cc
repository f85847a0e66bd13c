#include "client/cli/prepare_job.h"

#include <cstdint>
#include <utility>

#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/verify/lse_probe.h"

namespace annulus {

absl::StatusOr<AttendJob> MakeJob(JobRequest request) {
  if (request.synthetic.has_value()) return AttendJob::Synthetic(request.spec, *request.synthetic);
  ASSIGN_OR_RETURN(AttendJob job,
                   AttendJob::FromFile(*std::move(request.file), request.spec, request.shape));
  if (job.LeavesLseBaseOpen() && !request.says_lse_base) {
    RETURN_IF_ERROR(CheckLseOfFew(job.spec(), job.tensors()));
  }
  return job;
}

namespace {

// Inputs of this size are made in about 0.1 s. A call is not worth while for less.
constexpr int64_t kMuchBytes = 16 << 20;

int64_t InputBytes(const AttentionSpec& spec) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : TensorTable(spec)) {
    if (tensor.direction == Direction::kInput) bytes += RowsOf(tensor, spec) * tensor.row_bytes();
  }
  return bytes;
}

}  // namespace

bool IsRefusal(const absl::Status& status) {
  const ErrorDetail detail = DetailOf(status);
  if (detail.reason.empty() || detail.retry_after.has_value()) return false;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

absl::Status AskFirst(const ClientOptions& service, const JobRequest& request,
                      absl::Duration timeout) {
  if (request.spec.uses_state() || InputBytes(request.spec) < kMuchBytes) return absl::OkStatus();
  if (timeout <= absl::ZeroDuration()) return absl::OkStatus();
  Client client(service);
  const absl::Status status = client.Plan(request.spec, request.execution, timeout).status();
  return IsRefusal(status) ? status : absl::OkStatus();
}

}  // namespace annulus
