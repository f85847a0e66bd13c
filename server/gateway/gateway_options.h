#ifndef ANNULUS_SERVER_GATEWAY_GATEWAY_OPTIONS_H_
#define ANNULUS_SERVER_GATEWAY_GATEWAY_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/attention.pb.h"
#include "attention/validate/validate.h"
#include "client/session/run_job_call.h"
#include "client/transport/stream_pool.h"
#include "grpcpp/channel.h"
#include "proto/rpc/slow_reader_guard.h"

namespace annulus {

// Receives the answer to GetServerInfo, once, from any thread.
using ServerInfoReply = std::function<void(absl::StatusOr<v1::ServerInfo>)>;

// Options of the gateway. The gateway is a stateless client of the coordinator and of the workers.
// Its memory is bounded by `max_unsent_messages` for each call and `max_inline_bytes` for all
// inline calls together.
struct GatewayServiceOptions {
  // Runs a job at the coordinator.
  RunJobStarter run_job;
  // Returns a channel to a worker's data endpoint. Thread-safe.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> worker_channel;
  // Calls to workers for small shards. nullptr: each shard has calls of its own.
  std::shared_ptr<StreamPool> exchanges;
  // Never blocks.
  std::function<void(ServerInfoReply)> server_info;
  Limits limits;
  // Deadline of calls that set none, from their start. Every call has a deadline.
  absl::Duration max_timeout = absl::Hours(1);
  // The largest number of messages of a call that have been read and not yet sent to a worker. Each
  // has at most 1 MiB of tensor.
  int max_unsent_messages = 4;
  // The largest number of concurrent Attend, AttendMany, AttendInline and MergePartials calls. An
  // Attend call counts from its start message on, an AttendMany call while it has a job.
  int max_attend_calls = 256;
  // The largest number of AttendMany calls without a job. Above it, the call that has waited
  // longest for its next job ends.
  size_t max_resting_calls = 256;
  // How long an Attend call may wait for its start message, and an AttendMany call for its next
  // job.
  absl::Duration first_message_wait = absl::Seconds(10);
  // How long `accepted` of a small job waits for its outputs and its end.
  absl::Duration small_answer_wait = absl::Milliseconds(10);
  // How long the error of an Attend call waits for a caller that does not read.
  absl::Duration end_patience = absl::Seconds(2);
  // How long the rest of its answer, or the answer of a unary call, waits; see UnaryCall.
  absl::Duration answer_patience = kSlowReaderPatience;
  // Bytes of the tensors of all running inline calls.
  int64_t max_inline_bytes = int64_t{512} << 20;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_GATEWAY_OPTIONS_H_
