#include "server/gateway/inline_call.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/status_macros.h"
#include "base/mutex.h"
#include "client/job_session.h"
#include "proto/convert.h"
#include "proto/request.h"
#include "proto/unary_call.h"
#include "server/gateway/inline_job.h"
#include "server/gateway/request.h"

namespace annulus {
namespace {

// The tensors of a call. Sessions and gRPC hold it for as long as they may read; it knows nothing
// of the call, which holds the session: else neither would ever go.
struct InlineMemory {
  std::shared_ptr<void> reservation;
  std::vector<std::vector<std::byte>> tensors;
};

class InlineCall : public UnaryCall, private JobObserver {
 public:
  InlineCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
             const GatewayServiceOptions& options, const InlineResources& resources)
      : UnaryCall(context, &response_, resources.answer_patience, response),
        options_(options),
        gate_(resources.gate),
        queue_(resources.queue) {}

  void Start(std::shared_ptr<InlineCall> self, const grpc::ByteBuffer& arrived,
             absl::Time deadline) {
    self_ = self;
    Keep(self);
    Holds(2 * arrived.Length());  // As it came, and parsed.
    absl::StatusOr<std::shared_ptr<void>> place = gate_->Enter();
    if (!place.ok()) return Leave(place.status());
    place_ = *std::move(place);
    if (absl::Status s = ParseRequest(arrived, &request_); !s.ok()) return Leave(s);
    if (absl::Status s = CheckFieldsKnown(request_, ""); !s.ok()) return Leave(s);
    absl::StatusOr<JobOptions> job =
        JobOptionsOf(request_.spec(), request_.execution(), deadline, options_);
    if (!job.ok()) return Leave(job.status());
    absl::StatusOr<int64_t> bytes = InlineBytes(request_, job->spec);
    if (!bytes.ok()) return Leave(bytes.status());
    absl::StatusOr<std::shared_ptr<void>> reservation = queue_->Reserve(*bytes);
    if (!reservation.ok()) return Leave(reservation.status());
    memory_->reservation = *std::move(reservation);
    job_ = *std::move(job);
    queue_->Post([self] { self->Run(); });
  }

 private:
  // A caller that is gone gets nothing made. True: the call is over.
  bool EndIfCancelled() {
    {
      MutexLock lock(&mutex_);
      if (!cancelled_) return false;
    }
    Leave(absl::CancelledError("the call was cancelled"));
    return true;
  }

  // Who does not read keeps nobody out.
  void Leave(const absl::Status& status) {
    memory_ = nullptr;
    leaving_ = gate_->Leave(std::move(place_));
    End(status);
  }

  void Run() {
    if (EndIfCancelled()) return;
    absl::StatusOr<std::vector<std::vector<std::byte>>> tensors =
        InlineTensorBytes(request_, job_.spec);
    if (!tensors.ok()) return Leave(tensors.status());
    memory_->tensors = *std::move(tensors);
    const std::vector<TensorInfo> table = TensorTable(job_.spec);
    job_.inputs.emplace().owner = memory_;
    job_.outputs.emplace();
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i].direction == Direction::kInput) {
        job_.inputs->tensors[table[i].id] = memory_->tensors[i].data();
      } else {
        job_.outputs->tensors[table[i].id] = memory_->tensors[i].data();
      }
    }
    spec_ = job_.spec;
    session_self_ = self_;
    std::shared_ptr<JobSession> session = JobSession::Start(std::move(job_), this);
    bool cancelled;
    {
      MutexLock lock(&mutex_);
      session_ = session;
      cancelled = cancelled_;
    }
    if (cancelled) session->Cancel();
  }

  void OnPlaced(const std::string&, const v1::Plan&) override {}
  void OnProgress(const JobProgress&) override {}
  void OnOutput(std::vector<TensorChunk>, Credit) override {}
  void OnDone(const absl::Status& status, const v1::JobStats& stats) override {
    const std::shared_ptr<InlineCall> self = std::move(session_self_);
    if (!status.ok()) return Leave(status);
    *response_.mutable_stats() = stats;
    queue_->Post([self] {
      if (self->EndIfCancelled()) return;
      FillInlineResponse(self->request_, self->spec_, self->memory_->tensors, &self->response_);
      self->Leave(absl::OkStatus());
    });
  }

  void OnCancel() override {
    std::shared_ptr<JobSession> session;
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      session = session_;
    }
    if (session != nullptr) session->Cancel();
  }
  void OnDone() override {
    const std::shared_ptr<InlineCall> self = std::move(self_);
    UnaryCall::OnDone();
  }

  v1::AttendInlineRequest request_;
  v1::AttendInlineResponse response_;
  const GatewayServiceOptions& options_;
  CallGate* const gate_;
  InlineWorkers* const queue_;
  std::shared_ptr<void> place_,
      leaving_;  // In the gate, until the answer is made; until it is read.
  // The call and the session each keep this alive until they are done.
  std::shared_ptr<InlineCall> self_, session_self_;
  std::shared_ptr<InlineMemory> memory_ = std::make_shared<InlineMemory>();
  JobOptions job_;
  AttentionSpec spec_;
  Mutex mutex_;
  std::shared_ptr<JobSession> session_ GUARDED_BY(mutex_);
  bool cancelled_ GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerUnaryReactor* StartInlineCall(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer& arrived,
                                          grpc::ByteBuffer* response,
                                          const GatewayServiceOptions& options,
                                          const InlineResources& resources) {
  auto call = std::make_shared<InlineCall>(context, response, options, resources);
  call->Start(call, arrived, DeadlineOf(*context, options));
  return call.get();
}

}  // namespace annulus
