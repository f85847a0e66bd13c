#include "server/gateway/inline_call.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "client/session/job_session.h"
#include "proto/wire/convert.h"
#include "server/gateway/attend_request.h"
#include "server/gateway/inline_job.h"

namespace annulus {
namespace {

// The tensors of a call. Sessions and gRPC hold them as long as they may read. They do not refer to
// the call, which holds the session: such a cycle would never be freed.
struct InlineMemory {
  std::shared_ptr<void> reservation;
  std::vector<std::vector<std::byte>> tensors;
};

class InlineCall : public GatedCall<v1::AttendInlineRequest, v1::AttendInlineResponse>,
                   private JobObserver {
 public:
  InlineCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
             const GatewayServiceOptions& options, const InlineResources& resources)
      : GatedCall(context, response, resources), options_(options) {}

  void Start(std::shared_ptr<InlineCall> self, const grpc::ByteBuffer* arrived,
             absl::Time deadline) {
    Keep(self);
    const absl::Status taken = Take(arrived, deadline);
    if (!taken.ok()) return Leave(taken);
    Post([self] { self->Run(self); });
  }

 private:
  using UnaryCall::OnDone;

  absl::Status Take(const grpc::ByteBuffer* arrived, absl::Time deadline) {
    RETURN_IF_ERROR(Enter(arrived));
    RETURN_IF_ERROR(CheckFieldsKnown(request_, ""));
    ASSIGN_OR_RETURN(job_, JobOptionsOf(request_.spec(), request_.execution(), deadline, options_));
    ASSIGN_OR_RETURN(const int64_t bytes, InlineBytes(request_, job_.spec));
    ASSIGN_OR_RETURN(memory_->reservation, Reserve(bytes));
    return absl::OkStatus();
  }

  // True if the caller has cancelled; the call is then over and nothing is made for it.
  bool EndIfCancelled() {
    {
      MutexLock lock(&mutex_);
      if (!cancelled_) return false;
    }
    Leave(absl::CancelledError("the call was cancelled"));
    return true;
  }

  // Frees what the call holds, then leaves the gate.
  void Leave(const absl::Status& status) {
    memory_ = nullptr;
    job_ = JobOptions();
    spec_ = AttentionSpec();
    GatedCall::Leave(status);
  }

  void Run(const std::shared_ptr<InlineCall>& self) {
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
      } else if (table[i].direction == Direction::kOutput) {
        job_.outputs->tensors[table[i].id] = memory_->tensors[i].data();
      }
    }
    spec_ = job_.spec;
    session_self_ = self;
    const std::shared_ptr<JobSession> session =
        JobSession::Make(std::exchange(job_, JobOptions()), this);
    bool cancelled;
    {
      MutexLock lock(&mutex_);
      session_ = session;
      cancelled = cancelled_;
    }
    session->Run();
    if (cancelled) session->Cancel();
  }

  void OnPlaced(const std::string&, const v1::Plan&) override {}
  void OnProgress(const JobProgress&) override {}
  void OnOutput(std::vector<TensorChunk>, Credit) override {}
  void OnDone(const absl::Status& status, const v1::JobStats& stats) override {
    const std::shared_ptr<InlineCall> self = std::move(session_self_);
    std::shared_ptr<JobSession> session;  // Destroyed with its spec.
    {
      MutexLock lock(&mutex_);
      session = std::move(session_);
    }
    if (!status.ok()) return Leave(status);
    *response_.mutable_stats() = stats;
    Post([self] {
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

  const GatewayServiceOptions& options_;
  std::shared_ptr<InlineCall> session_self_;  // The session keeps this alive until it is done.
  std::shared_ptr<InlineMemory> memory_ = std::make_shared<InlineMemory>();
  JobOptions job_;
  AttentionSpec spec_;
  Mutex mutex_;
  std::shared_ptr<JobSession> session_ GUARDED_BY(mutex_);
  bool cancelled_ GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerUnaryReactor* StartInlineCall(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* arrived,
                                          grpc::ByteBuffer* response,
                                          const GatewayServiceOptions& options,
                                          const InlineResources& resources) {
  auto call = std::make_shared<InlineCall>(context, response, options, resources);
  call->Start(call, arrived, DeadlineOf(*context, options));
  return call.get();
}

}  // namespace annulus
