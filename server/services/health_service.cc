#include "server/services/health_service.h"

#include <string>
#include <utility>

#include "grpcpp/support/server_callback.h"
#include "proto/rpc/request_fields.h"
#include "proto/rpc/slow_reader_guard.h"
#include "proto/rpc/unary_call.h"
#include "proto/wire/status.h"
#include "proto/wire/tensor_stream.h"
#include "server/services/outbox.h"

namespace annulus {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

HealthSubject SubjectOf(const std::string& service) {
  if (service == "liveness") return HealthSubject::kLiveness;
  const bool readiness = service.empty() || service == "readiness" ||
                         service == "annulus.v1.Attention" || service == "annulus.v1.Jobs";
  return readiness ? HealthSubject::kReadiness : HealthSubject::kUnknown;
}

}  // namespace

// One Watch call; sends each change. It stays in the service's set until gRPC is done with it.
class HealthWatch final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public std::enable_shared_from_this<HealthWatch> {
 public:
  HealthWatch(HealthService* service, grpc::CallbackServerContext* context, HealthSubject subject)
      : service_(service),
        slow_reader_guard_(context),
        subject_(subject),
        box_(kMaxWaiting, kMaxWaiting * 64, Box::JoinEnd::kNo) {}

  HealthSubject subject() const { return subject_; }

  void Tell(HealthCheckResponse::ServingStatus status) {
    HealthCheckResponse response;
    response.set_status(status);
    bool overflow = false;
    Do(box_.Push(std::move(response), &overflow));
    if (overflow) End(absl::ResourceExhaustedError("the client does not read the answers"));
  }
  void End(const absl::Status& status) {
    slow_reader_guard_.Begin(kSlowReaderPatience);
    Do(box_.End(status, Box::Flush::kNo));
  }

  void OnWriteDone(bool ok) override { Do(box_.Written(ok)); }
  void OnCancel() override { End(absl::CancelledError("cancelled")); }
  void OnDone() override {
    slow_reader_guard_.Over();
    service_->Forget(this);
  }

 private:
  using Box = Outbox<HealthCheckResponse>;
  static constexpr size_t kMaxWaiting = 64;

  void Do(Box::Start start) {
    if (start == Box::Start::kFinish) Finish(ToGrpcStatus(box_.end()));
    if (start != Box::Start::kWrite) return;
    out_ = EncodeProto(box_.front());
    StartWrite(&out_);
  }

  HealthService* const service_;
  SlowReaderGuard slow_reader_guard_;
  const HealthSubject subject_;
  Box box_;
  grpc::ByteBuffer out_;
};

HealthCheckResponse::ServingStatus HealthService::StatusLocked(HealthSubject subject) const {
  if (subject == HealthSubject::kUnknown) return HealthCheckResponse::SERVICE_UNKNOWN;
  const bool serving = subject == HealthSubject::kReadiness ? ready_ : alive_();
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::SetReady(bool ready) {
  MutexLock lock(&mutex_);
  if (ready_ == ready) return;
  ready_ = ready;
  for (const std::shared_ptr<HealthWatch>& watch : watches_) {
    if (watch->subject() == HealthSubject::kReadiness) watch->Tell(StatusLocked(watch->subject()));
  }
}

void HealthService::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (const std::shared_ptr<HealthWatch>& watch : watches_) {
    watch->End(absl::UnavailableError("the server is shutting down"));
  }
}

void HealthService::Forget(HealthWatch* watch) {
  std::shared_ptr<HealthWatch> last = watch->shared_from_this();
  MutexLock lock(&mutex_);
  watches_.erase(last);
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* arrived,
                                               grpc::ByteBuffer* response) {
  auto* const call = AnswerCall<HealthCheckResponse>::Start(context, kSlowReaderPatience, response);
  HealthCheckRequest request;
  absl::Status status = TakeQuestion(arrived, &request);
  const HealthSubject subject = SubjectOf(request.service());
  if (status.ok() && subject == HealthSubject::kUnknown) {
    status = absl::NotFoundError("unknown service");
  }
  {
    MutexLock lock(&mutex_);
    call->answer.set_status(StatusLocked(subject));
  }
  call->End(status);
  return call;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* arrived) {
  HealthCheckRequest request;
  absl::Status refusal = TakeQuestion(arrived, &request);
  auto watch = std::make_shared<HealthWatch>(this, context, SubjectOf(request.service()));
  MutexLock lock(&mutex_);
  if (refusal.ok() && watches_.size() >= max_watches_) {
    refusal = absl::ResourceExhaustedError("too many watches are open");
  }
  watches_.insert(watch);
  if (!refusal.ok()) {
    watch->End(refusal);
    return watch.get();
  }
  watch->Tell(StatusLocked(watch->subject()));
  if (stopped_) watch->End(absl::UnavailableError("the server is shutting down"));
  return watch.get();
}

}  // namespace annulus
