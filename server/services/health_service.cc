#include "server/services/health_service.h"

#include <utility>
#include <vector>

#include "grpcpp/support/server_callback.h"
#include "proto/unary_call.h"
#include "proto/unread_end.h"
#include "server/services/outbox.h"

namespace annulus {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

bool IsReadinessName(const std::string& service) {
  return service.empty() || service == "readiness" || service == "annulus.v1.Attention" ||
         service == "annulus.v1.Jobs";
}

}  // namespace

// One Watch call: tells each change. In the service's set until gRPC is done with it.
class HealthWatch final : public grpc::ServerWriteReactor<HealthCheckResponse>,
                          public std::enable_shared_from_this<HealthWatch> {
 public:
  HealthWatch(HealthService* service, grpc::CallbackServerContext* context, std::string name)
      : service_(service),
        unread_end_(context),
        name_(std::move(name)),
        box_(kMaxWaiting, kMaxWaiting * 64, Box::JoinEnd::kNo) {}

  const std::string& name() const { return name_; }

  void Tell(HealthCheckResponse::ServingStatus status) {
    HealthCheckResponse response;
    response.set_status(status);
    bool overflow = false;
    Do(box_.Push(std::move(response), &overflow));
    if (overflow) End(absl::ResourceExhaustedError("the client does not read"));
  }
  void End(const absl::Status& status) {
    unread_end_.Begin(kUnreadPatience);
    Do(box_.End(status, Box::Flush::kNo));
  }

  void OnWriteDone(bool ok) override { Do(box_.Written(ok)); }
  void OnCancel() override { End(absl::CancelledError("cancelled")); }
  void OnDone() override {
    unread_end_.Over();
    service_->Forget(this);
  }

 private:
  using Box = Outbox<HealthCheckResponse>;
  static constexpr size_t kMaxWaiting = 64;

  void Do(Box::Start start) {
    if (start == Box::Start::kWrite) StartWrite(&box_.front());
    if (start == Box::Start::kFinish) {
      const absl::Status end = box_.end();
      Finish(grpc::Status(static_cast<grpc::StatusCode>(end.code()), std::string(end.message())));
    }
  }

  HealthService* const service_;
  UnreadEnd unread_end_;
  const std::string name_;
  Box box_;
};

HealthCheckResponse::ServingStatus HealthService::StatusLocked(const std::string& service) const {
  bool serving = false;
  if (IsReadinessName(service)) {
    serving = ready_;
  } else if (service == "liveness") {
    serving = alive_();
  } else {
    return HealthCheckResponse::SERVICE_UNKNOWN;
  }
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::SetReady(bool ready) {
  MutexLock lock(&mutex_);
  if (ready_ == ready) return;
  ready_ = ready;
  for (const std::shared_ptr<HealthWatch>& watch : watches_) {
    if (IsReadinessName(watch->name())) watch->Tell(StatusLocked(watch->name()));
  }
}

void HealthService::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (const std::shared_ptr<HealthWatch>& watch : watches_) {
    watch->End(absl::UnavailableError("the server stops"));
  }
}

void HealthService::Forget(HealthWatch* watch) {
  std::shared_ptr<HealthWatch> last = watch->shared_from_this();
  MutexLock lock(&mutex_);
  watches_.erase(last);
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  {
    MutexLock lock(&mutex_);
    response->set_status(StatusLocked(request->service()));
  }
  if (response->status() == HealthCheckResponse::SERVICE_UNKNOWN) {
    grpc::ServerUnaryReactor* const refused = context->DefaultReactor();
    refused->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown service"));
    return refused;
  }
  UnaryCall* const call = UnaryCall::Start(context, response);
  call->End(absl::OkStatus());
  return call;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* context, const HealthCheckRequest* request) {
  auto watch = std::make_shared<HealthWatch>(this, context, request->service());
  MutexLock lock(&mutex_);
  const bool full = watches_.size() >= max_watches_;
  watches_.insert(watch);
  if (full) {
    watch->End(absl::ResourceExhaustedError("too many watches are open"));
    return watch.get();
  }
  watch->Tell(StatusLocked(request->service()));
  if (stopped_) watch->End(absl::UnavailableError("the server stops"));
  return watch.get();
}

}  // namespace annulus
