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

// The deadline of a call by base/steady_time.h: its own, at most max_timeout from now.
absl::Time DeadlineOf(const grpc::ServerContextBase& context, const GatewayServiceOptions& options);

// A session's options for a request of the gateway: converted and validated, without memory for
// tensors. Errors: those of SpecFromProto, ExecutionFromProto and Validate.
absl::StatusOr<JobOptions> JobOptionsOf(const v1::AttentionSpec& spec,
                                        const v1::Execution& execution, absl::Time deadline,
                                        const GatewayServiceOptions& options);

// Shapes by which chunks of a job's inputs are checked.
struct InputShape {
  std::vector<TensorInfo> table;
  int64_t q_rows = 0, kv_rows = 0;
};
// Checks the chunks of one message; an error names the chunk. Fills in their heads. Errors: those
// of CheckInput.
absl::Status CheckInputs(const InputShape& shape, std::vector<TensorChunk>* chunks);

// A job by its checked first message: its start, and the inputs in the same message.
struct StartedJob {
  JobOptions options;
  InputShape inputs;
  std::vector<TensorChunk> chunks;
  // Bytes of the inputs that have not come, and of all outputs.
  int64_t bytes_missing = 0, output_bytes = 0;
};
// Parses the first message of a job. `deadline` is the call's. `tag` is set to the start's tag if
// it can be read, also in case of an error. Errors, with paths of an AttendRequest, in the order of
// checks:
// - INVALID_ARGUMENT / LIMIT_EXCEEDED, MALFORMED_MESSAGE, and those of DecodeChunks;
// - UNKNOWN_FIELD; STREAM_SEQUENCE without a start; INVALID_REQUEST for the timeout;
// - those of JobOptionsOf and CheckInputs.
absl::StatusOr<StartedJob> ParseStart(const grpc::ByteBuffer& message, absl::Time deadline,
                                      const GatewayServiceOptions& options, uint64_t* tag);

// INVALID_ARGUMENT / STREAM_SEQUENCE at `start`.
absl::Status StartError(absl::string_view what);

// The error of a job with paths of its AttendRequest: the spec is in `start`. The index of a chunk
// at fault is not known any more.
absl::Status InAttendRequest(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_ATTEND_REQUEST_H_
