#ifndef ANNULUS_SERVER_GATEWAY_REQUEST_H_
#define ANNULUS_SERVER_GATEWAY_REQUEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/types.pb.h"
#include "client/job_session.h"
#include "grpcpp/server_context.h"
#include "server/gateway/options.h"

namespace annulus {

// The deadline of a call, by base/steady_time.h: its own, at most the gateway's longest.
absl::Time DeadlineOf(const grpc::ServerContextBase& context, const GatewayServiceOptions& options);

// A session's options for a request of the gateway: converted and validated, without memory.
// Errors: those of SpecFromProto, ExecutionFromProto and Validate.
absl::StatusOr<JobOptions> JobOptionsOf(const v1::AttentionSpec& spec,
                                        const v1::Execution& execution, absl::Time deadline,
                                        const GatewayServiceOptions& options);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_REQUEST_H_
