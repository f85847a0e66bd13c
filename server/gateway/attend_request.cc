#include "server/gateway/attend_request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "annulus/v1/attention.pb.h"
#include "attention/spec/tensor_bytes.h"
#include "attention/validate/validate.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "client/transport/scatter.h"
#include "proto/rpc/grpc_time.h"
#include "proto/rpc/request_fields.h"
#include "proto/wire/check_duration.h"
#include "proto/wire/convert.h"
#include "proto/wire/field_paths.h"

namespace annulus {

absl::Time DeadlineOf(const grpc::ServerContextBase& context,
                      const GatewayServiceOptions& options) {
  return SteadyNow() + std::min(TimeLeft(context.deadline()), options.max_timeout);
}

absl::StatusOr<JobOptions> JobOptionsOf(const v1::AttentionSpec& spec,
                                        const v1::Execution& execution, absl::Time deadline,
                                        const GatewayServiceOptions& options) {
  JobOptions job;
  ASSIGN_OR_RETURN(job.spec, SpecFromProto(spec, "spec"));
  ASSIGN_OR_RETURN(const Execution wanted, ExecutionFromProto(execution, "execution"));
  RETURN_IF_ERROR(Validate(job.spec, wanted, options.limits));
  job.run_job = options.run_job;
  job.worker_channel = options.worker_channel;
  job.exchanges = options.exchanges;
  job.deadline = deadline;
  *job.request.mutable_spec() = spec;
  *job.request.mutable_execution() = execution;
  job.request.set_quiet(true);
  return job;
}

absl::Status CheckInputs(const InputShape& shape, std::vector<TensorChunk>* chunks) {
  for (size_t i = 0; i < chunks->size(); ++i) {
    const absl::Status status =
        CheckInput(shape.table, shape.q_rows, shape.kv_rows, &(*chunks)[i]).status();
    if (status.ok()) continue;
    return WithFieldPaths(status, [i](absl::string_view path) {
      return absl::StrCat("chunks[", i, "]", absl::StripPrefix(path, "chunk"));
    });
  }
  return absl::OkStatus();
}

absl::StatusOr<StartedJob> ParseStart(const grpc::ByteBuffer& message, absl::Time deadline,
                                      const GatewayServiceOptions& options, uint64_t* tag) {
  StartedJob job;
  v1::AttendRequest request;
  RETURN_IF_ERROR(CheckRequestParts(message, request.GetDescriptor()));
  ASSIGN_OR_RETURN(job.chunks, DecodeChunks(message, &request));
  *tag = request.start().tag();
  RETURN_IF_ERROR(CheckKnown(request, job.chunks));
  if (!request.has_start()) return StartError("the first message must hold the start");
  const v1::AttendRequest::Start& start = request.start();
  RETURN_IF_ERROR(CheckFieldsKnown(start, "start"));
  if (start.has_timeout()) {
    RETURN_IF_ERROR(CheckDuration(start.timeout(), "start.timeout", absl::InfiniteDuration()));
    deadline = std::min(deadline, SteadyNow() + DurationFromProto(start.timeout()));
  }
  ASSIGN_OR_RETURN(job.options, JobOptionsOf(start.spec(), start.execution(), deadline, options));
  job.options.request.set_request_id(start.request_id());
  // Data that has passed through is gone: only the caller can send it again.
  job.options.request.set_single_attempt(true);
  const AttentionSpec& spec = job.options.spec;
  job.inputs = {TensorTable(spec), spec.q_rows(), spec.kv_rows()};
  RETURN_IF_ERROR(CheckInputs(job.inputs, &job.chunks));
  job.bytes_missing = TensorBytes(job.inputs.table, spec, Direction::kInput);
  for (const TensorChunk& chunk : job.chunks) {
    job.bytes_missing -= static_cast<int64_t>(chunk.data.size());
  }
  job.output_bytes = TensorBytes(job.inputs.table, spec, Direction::kOutput);
  return job;
}

absl::Status StartError(absl::string_view what) {
  return InvalidField("STREAM_SEQUENCE", "start", what);
}

absl::Status InAttendRequest(const absl::Status& status) {
  return WithFieldPaths(status, [](absl::string_view path) {
    const absl::string_view root = path.substr(0, path.find_first_of(".["));
    if (root == "chunk") return std::string("chunks");
    const bool inside = root == "spec" || root == "execution" || root == "request_id";
    return absl::StrCat(inside ? "start." : "", path);
  });
}

}  // namespace annulus
