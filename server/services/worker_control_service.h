#ifndef ANNULUS_SERVER_SERVICES_WORKER_CONTROL_SERVICE_H_
#define ANNULUS_SERVER_SERVICES_WORKER_CONTROL_SERVICE_H_

#include "absl/time/time.h"
#include "annulus/control/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/rpc/slow_reader_guard.h"
#include "server/services/coordinator_loop.h"

namespace annulus {

// annulus.control.v1.WorkerControl: passes workers' messages to the coordinator loop and its
// commands back. Commands are raw buffers that share a job's spec. The coordinator loop outlives
// the server. A stream ends in these cases:
// - the worker does not read its commands;
// - no first message arrives within `first_message_wait`;
// - the end of the stream is not read within `end_patience`: it is cancelled.
class WorkerControlService final : public control::v1::WorkerControl::WithRawCallbackMethod_Connect<
                                       control::v1::WorkerControl::Service> {
 public:
  WorkerControlService(CoordinatorLoop* loop, absl::Duration first_message_wait,
                       absl::Duration end_patience = kSlowReaderPatience)
      : loop_(loop), first_message_wait_(first_message_wait), end_patience_(end_patience) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  CoordinatorLoop* const loop_;
  const absl::Duration first_message_wait_;
  const absl::Duration end_patience_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_WORKER_CONTROL_SERVICE_H_
