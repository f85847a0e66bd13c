#include "worker/agent/connect_probe.h"

#include <chrono>
#include <utility>

#include "grpc/health/v1/health.grpc.pb.h"

namespace annulus {

using grpc::health::v1::Health;

struct ConnectProbe::Question {
  grpc::ClientContext context;
  std::unique_ptr<Health::Stub> stub;
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
};

ConnectProbe::ConnectProbe(std::shared_ptr<grpc::Channel> channel, std::string address)
    : channel_(std::move(channel)), address_(std::move(address)) {}

ConnectProbe::~ConnectProbe() {
  if (question_ != nullptr) question_->context.TryCancel();
}

void ConnectProbe::Ask(LogLevel level) {
  if (question_ != nullptr) question_->context.TryCancel();
  question_ = std::make_shared<Question>();
  question_->stub = Health::NewStub(channel_);
  question_->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  question_->stub->async()->Check(
      &question_->context, &question_->request, &question_->response,
      [question = question_, address = address_, level](const grpc::Status& status) {
        // Any other status shows that a connection was made.
        if (status.error_code() != grpc::StatusCode::UNAVAILABLE &&
            status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) {
          return;
        }
        LogAt(level, kNoJob, "cannot reach the coordinator at ", address, ": ",
              status.error_message(), "; trying again");
      });
}

}  // namespace annulus
