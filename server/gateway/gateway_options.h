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

// Delivers the answer to GetServerInfo, once, from any thread.
using ServerInfoReply = std::function<void(absl::StatusOr<v1::ServerInfo>)>;

// What the gateway stands on. It is a client of the coordinator and of the workers, stateless, with
// memory bounded by `max_unsent_messages` for each call and `max_inline_bytes` for all inline calls
// together.
struct GatewayServiceOptions {
  // Runs a job at the coordinator.
  RunJobStarter run_job;
  // A channel to a worker's data endpoint. Thread-safe.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> worker_channel;
  // Calls to workers for small shards; nullptr: each shard has calls of its own.
  std::shared_ptr<StreamPool> exchanges;
  // Never waits.
  std::function<void(ServerInfoReply)> server_info;
  Limits limits;
  // The deadline of calls that come without one, from their start.
  absl::Duration max_timeout = absl::Hours(1);
  // Messages of a call that have been read and have not left for a worker yet; each has at most
  // 1 MiB of tensor.
  int max_unsent_messages = 4;
  // Attend, AttendMany, AttendInline and MergePartials calls that are at work at once. An Attend
  // call is from its start message on, an AttendMany call while it has a job.
  int max_attend_calls = 256;
  // AttendMany calls without a job: the one that waits longest for its next ends.
  size_t max_resting_calls = 256;
  // How long an Attend call may be open before its start message is here, and an AttendMany call
  // without a job.
  absl::Duration first_message_wait = absl::Seconds(10);
  // How long the word that a small job was accepted waits for its outputs and its end.
  absl::Duration small_answer_wait = absl::Milliseconds(10);
  // How long an Attend call's error waits for a caller that does not read.
  absl::Duration end_patience = absl::Seconds(2);
  // How long what is left of its answer does, or the answer of a unary call, see UnaryCall.
  absl::Duration answer_patience = kSlowReaderPatience;
  // Tensors of all inline calls at work.
  int64_t max_inline_bytes = int64_t{512} << 20;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_GATEWAY_OPTIONS_H_
