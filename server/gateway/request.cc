#include "server/gateway/request.h"

#include <algorithm>
#include <utility>

#include "attention/status_macros.h"
#include "attention/validate.h"
#include "base/steady_time.h"
#include "proto/convert.h"
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

}  // namespace annulus
