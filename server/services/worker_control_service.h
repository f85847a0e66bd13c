#ifndef ANNULUS_SERVER_SERVICES_WORKER_CONTROL_SERVICE_H_
#define ANNULUS_SERVER_SERVICES_WORKER_CONTROL_SERVICE_H_

#include "annulus/control/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/services/brain.h"

namespace annulus {

// annulus.control.v1.WorkerControl: workers' messages to the brain and its commands back, these as
// raw buffers, which share a job's spec. A worker that does not read its commands loses its stream.
// The brain outlives the server.
class WorkerControlService final : public control::v1::WorkerControl::WithRawCallbackMethod_Connect<
                                       control::v1::WorkerControl::Service> {
 public:
  explicit WorkerControlService(Brain* brain) : brain_(brain) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  Brain* const brain_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_WORKER_CONTROL_SERVICE_H_
