#ifndef ANNULUS_CLIENT_ATTEND_H_
#define ANNULUS_CLIENT_ATTEND_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "client/session/job_progress.h"
#include "client/transport/tensor_strides.h"

namespace annulus {

// The route of a job's tensors.
// - kDirect: between this process and the workers.
// - kGateway: through the coordinator's address.
// - kAuto: kDirect if every ready worker accepts a connection, else kGateway.
enum class DataPath { kAuto, kDirect, kGateway };

// One job. Tensors are packed rows [rows, heads, dim], row-major and little-endian, or have
// strides. TensorTable(spec) (attention/spec/tensor_table.h) lists them with heads, dim and dtype.
struct AttendArguments {
  AttentionSpec spec;
  Execution execution;
  // Every input of the spec, of exactly its size in bytes. Borrowed: the memory must stay unchanged
  // until the job has ended (Attend() has returned, `done` of AttendAsync() has been called).
  std::map<TensorId, absl::Span<const std::byte>> inputs;
  // The wanted outputs, of exactly their size in bytes. Borrowed: written until the job has ended.
  // An output that is absent here is dropped. After an error the contents are undefined.
  std::map<TensorId, absl::Span<std::byte>> outputs;
  // Inputs and outputs that are not packed rows: where their elements are. The span then reaches
  // from the first element to the end of the last one (StridedBytes()), or further. Rows are packed
  // chunk by chunk as they are sent, never the whole tensor.
  std::map<TensorId, TensorStrides> strides;
  DataPath path = DataPath::kAuto;
  // Time from now to the end of the job, retries included. Zero: ClientOptions::default_timeout.
  // The coordinator ends a job after its --max-timeout (1 h by default) in any case.
  absl::Duration timeout;
  // Maximum number of sends, at least 1. Sent again, while the deadline allows: ABORTED /
  // GROUP_LOST, UNAVAILABLE, and errors with a retry delay (RetryInfo). The delay is that of the
  // error, else it grows from 0.1 s to 5 s (client/session/retry.h). Not counted: the resend of a
  // small job because a pooled call turned out to be closed, and the resend of
  // upload_without_state.
  int max_attempts = 4;
  // RunJobRequest.request_id (proto/annulus/v1/jobs.proto). Empty: none.
  std::string request_id;
  // For gradients that use a kept state (spec.gradients.state). True: `inputs` are those of the
  // same job without a state. Only the inputs that the state lacks are sent. If the state is gone
  // (NOT_FOUND with STATE_LOST, STATE_EXPIRED, STATE_RELEASED or STATE_NOT_FOUND), the job is sent
  // again without the state and with all inputs; see AttendResult::state_gone.
  bool upload_without_state = false;
  // Optional. Called one at a time, from threads of the client or of gRPC; must not block. `placed`
  // gets the plan of each attempt (through the gateway: without endpoints and tickets).
  std::function<void(const JobProgress&)> progress;
  std::function<void(const std::string& job_id, const v1::Plan&)> placed;
};

struct AttendResult {
  v1::JobStats stats;
  v1::Plan plan;  // The plan of the last attempt.
  DataPath path = DataPath::kAuto;
  int attempts = 0;  // The number of sends.
  // The reason (STATE_LOST …) why the state that the job named was not used and all inputs were
  // sent. Else empty.
  std::string state_gone;
  // For a job with spec.gradients.release_state. The error with which the job or its call ended
  // after every row of every output had arrived, was verified and stored. The outputs are valid. It
  // is unknown if the state is released and request_id is free: call ReleaseState() and GetJob().
  // Else empty.
  std::string release_unconfirmed;
  // True if release_unconfirmed is set and not every worker has reported its stats (through the
  // gateway: none). Then `running` and `exposed_communication` are those of the slowest worker that
  // has reported, or 0; `bytes_sent_per_rank` is 0 for the other workers, or empty.
  bool stats_partial = false;
};

// Handle to a job of AttendAsync(). Destroying the handle does not cancel the job. Thread-safe.
//
//   auto ended = std::make_shared<std::promise<absl::StatusOr<AttendResult>>>();
//   std::shared_ptr<Client::Call> call = client.AttendAsync(
//       std::move(job), [ended](auto result) { ended->set_value(std::move(result)); });
//   if (caller_has_left) call->Cancel();
//   auto result = ended->get_future().get();  // q, k, v and out are the caller's again.
class AttendCallHandle {
 public:
  virtual ~AttendCallHandle() = default;
  // Requests the end of the job. `done` gets CANCELLED, or the job's result if that was faster.
  // Idempotent; does not block.
  virtual void Cancel() = 0;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_ATTEND_H_
