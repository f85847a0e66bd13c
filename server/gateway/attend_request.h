#ifndef ANNULUS_SERVER_GATEWAY_ATTEND_REQUEST_H_
#define ANNULUS_SERVER_GATEWAY_ATTEND_REQUEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "annulus/v1/types.pb.h"
#include "attention/spec/tensor_table.h"
#include "client/session/job_session.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/wire/tensor_stream.h"
#include "server/gateway/gateway_options.h"

namespace annulus {

// The deadline of a call, by base/steady_time.h: its own, at most the gateway's longest.
absl::Time DeadlineOf(const grpc::ServerContextBase& context, const GatewayServiceOptions& options);

// A session's options for a request of the gateway: converted and validated, without memory.
// Errors: those of SpecFromProto, ExecutionFromProto and Validate.
absl::StatusOr<JobOptions> JobOptionsOf(const v1::AttentionSpec& spec,
                                        const v1::Execution& execution, absl::Time deadline,
                                        const GatewayServiceOptions& options);

// What chunks of a job's inputs are checked by.
struct InputShape {
  std::vector<TensorInfo> table;
  int64_t q_rows = 0, kv_rows = 0;
};
// Of one message: an error says which one. Fills in their heads. Errors: those of CheckInput.
absl::Status CheckInputs(const InputShape& shape, std::vector<TensorChunk>* chunks);

// A job by its first message, which is checked: its start, and the inputs that came along.
struct StartedJob {
  JobOptions options;
  InputShape inputs;
  std::vector<TensorChunk> chunks;
  // Of the inputs, those that have not come, and of the outputs.
  int64_t bytes_missing = 0, output_bytes = 0;
};
// `deadline` is the call's. `tag` is set to the start's where it can be read, whatever else is
// wrong. Errors, as those of an AttendRequest: MALFORMED_MESSAGE, LIMIT_EXCEEDED, UNKNOWN_FIELD,
// STREAM_SEQUENCE, INVALID_REQUEST, and those of JobOptionsOf and CheckInputs.
absl::StatusOr<StartedJob> ParseStart(const grpc::ByteBuffer& message, absl::Time deadline,
                                      const GatewayServiceOptions& options, uint64_t* tag);

// INVALID_ARGUMENT / STREAM_SEQUENCE of the start message.
absl::Status StartError(absl::string_view what);

// The error of a job as one of the AttendRequest that asked for it: its spec is in `start`. Which
// chunk was at fault is not known any more.
absl::Status InAttendRequest(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_ATTEND_REQUEST_H_
