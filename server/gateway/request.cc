#include "server/gateway/request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attention/status_macros.h"
#include "attention/validate.h"
#include "base/steady_time.h"
#include "client/scatter.h"
#include "proto/convert.h"
#include "proto/field_paths.h"
#include "proto/grpc_time.h"

namespace annulus {

absl::Time DeadlineOf(const grpc::ServerContextBase& context,
                      const GatewayServiceOptions& options) {
  return std::min(SteadyTime(absl::FromChrono(context.deadline())),
                  SteadyNow() + options.max_timeout);
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

absl::Status InAttendRequest(const absl::Status& status) {
  return WithFieldPaths(status, [](absl::string_view path) {
    const absl::string_view root = path.substr(0, path.find_first_of(".["));
    if (root == "chunk") return std::string("chunks");
    const bool inside = root == "spec" || root == "execution" || root == "request_id";
    return absl::StrCat(inside ? "start." : "", path);
  });
}

}  // namespace annulus
