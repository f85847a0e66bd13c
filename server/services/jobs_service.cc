#include "server/services/jobs_service.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "attention/status_macros.h"
#include "proto/convert.h"
#include "proto/request.h"
#include "proto/unary_call.h"
#include "server/coordinator/submission.h"

namespace annulus {
namespace {

// The brain's one word to a unary call. gRPC keeps the response until the call ends.
template <typename Response>
class UnaryAnswer final : public UnaryCall, public CallSink {
 public:
  UnaryAnswer(grpc::CallbackServerContext* context, Response* response, absl::Duration patience)
      : UnaryCall(context, response, patience), response_(response) {}
  void Send(v1::JobEvent) override {}
  void Finish(const absl::Status& status) override { End(status); }
  void Answer(absl::StatusOr<Value> value) override {
    if (value.ok()) *response_ = std::get<Response>(*std::move(value));
    End(value.status());
  }

 private:
  Response* const response_;
};

// The same for a dry run, which takes long enough for its caller to go away meanwhile.
class PlanAnswer final : public UnaryCall, public CallSink {
 public:
  PlanAnswer(Brain* brain, grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
             absl::Duration patience)
      : UnaryCall(context, &plan_, patience, response),
        brain_(brain),
        number_(brain->NewNumber()) {}

  static grpc::ServerUnaryReactor* Start(
      std::shared_ptr<PlanAnswer> call,
      absl::StatusOr<std::shared_ptr<const Submission>> submission) {
    PlanAnswer* reactor = call.get();
    reactor->Keep(call);
    if (!submission.ok()) {
      reactor->Answer(submission.status());
      return reactor;
    }
    event::PlanJob event{reactor->number_, kAnonymous, *std::move(submission)};
    const absl::Status taken =
        reactor->brain_->PostCall(reactor->number_, std::move(call), std::move(event));
    if (!taken.ok()) reactor->Answer(taken);
    return reactor;
  }

  void Send(v1::JobEvent) override {}
  void Finish(const absl::Status& status) override { Answer(status); }
  void Answer(absl::StatusOr<Value> value) override {
    if (ended_.exchange(true)) return;
    if (value.ok()) plan_ = std::get<v1::Plan>(*std::move(value));
    End(value.status());
  }

  void OnCancel() override {
    brain_->Post(event::CallGone{number_}).IgnoreError();
    Answer(absl::CancelledError("the call was cancelled"));
  }

 private:
  Brain* const brain_;
  const int64_t number_;
  v1::Plan plan_;  // Until the first end.
  std::atomic<bool> ended_{false};
};

template <typename Response>
std::shared_ptr<UnaryAnswer<Response>> NewAnswer(grpc::CallbackServerContext* context,
                                                 Response* response, absl::Duration patience) {
  return std::make_shared<UnaryAnswer<Response>>(context, response, patience);
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* Ask(Brain* brain, int64_t call,
                              std::shared_ptr<UnaryAnswer<Response>> answer, const Request& request,
                              Event event) {
  UnaryCall* const reactor = answer.get();
  reactor->Keep(answer);
  reactor->Holds(request.ByteSizeLong());
  absl::Status taken = CheckFieldsKnown(request, "");
  if (taken.ok()) taken = brain->PostCall(call, std::move(answer), std::move(event));
  if (!taken.ok()) reactor->End(taken);
  return reactor;
}

absl::StatusOr<std::shared_ptr<const Submission>> PlanRequestOf(const grpc::ByteBuffer& arrived,
                                                                const CoordinatorOptions& options) {
  v1::PlanJobRequest request;
  RETURN_IF_ERROR(ParseRequest(arrived, &request));
  RETURN_IF_ERROR(CheckFieldsKnown(request, ""));
  v1::RunJobRequest job;
  job.mutable_spec()->Swap(request.mutable_spec());
  job.mutable_execution()->Swap(request.mutable_execution());
  return MakeSubmission(std::move(job), options);
}

absl::StatusOr<std::shared_ptr<const Submission>> RunRequestOf(const grpc::ByteBuffer& arrived,
                                                               const CoordinatorOptions& options) {
  v1::RunJobRequest request;
  RETURN_IF_ERROR(ParseRequest(arrived, &request));
  return MakeSubmission(std::move(request), options);
}

// By the brain's clock. gRPC tells a deadline by the time of day, and keeps it as what is left.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context, const Brain& brain) {
  using Clock = std::chrono::system_clock;
  const Clock::time_point deadline = context.deadline();
  if (deadline == Clock::time_point::max()) return absl::InfiniteFuture();
  const absl::Time now = brain.Now();
  return now + absl::FromChrono(deadline - Clock::now());
}

}  // namespace

grpc::ServerUnaryReactor* JobsService::PlanJob(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* arrived,
                                               grpc::ByteBuffer* response) {
  auto call = std::make_shared<PlanAnswer>(brain_, context, response, end_patience_);
  call->Holds(arrived->Length());
  return PlanAnswer::Start(std::move(call), PlanRequestOf(*arrived, options_));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobsService::RunJob(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* arrived) {
  auto stream = std::make_shared<JobStream>(brain_, context, end_patience_);
  auto submission = RunRequestOf(*arrived, options_);
  if (!submission.ok()) return JobStream::Refuse(std::move(stream), submission.status());
  const int64_t call = stream->number();
  return JobStream::Start(std::move(stream), event::RunJob{call, kAnonymous, *std::move(submission),
                                                           DeadlineOf(*context, *brain_)});
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobsService::WatchJob(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* arrived) {
  auto stream = std::make_shared<JobStream>(brain_, context, end_patience_);
  v1::WatchJobRequest request;
  absl::Status s = ParseRequest(*arrived, &request);
  if (s.ok()) s = CheckFieldsKnown(request, "");
  if (!s.ok()) {
    return JobStream::Refuse(std::move(stream), s);
  }
  const int64_t call = stream->number();
  return JobStream::Start(std::move(stream), event::WatchJob{call, kAnonymous, request.job_id()});
}

grpc::ServerUnaryReactor* JobsService::GetJob(grpc::CallbackServerContext* context,
                                              const v1::GetJobRequest* request, v1::Job* response) {
  const int64_t call = brain_->NewNumber();
  return Ask(brain_, call, NewAnswer(context, response, end_patience_), *request,
             event::GetJob{call, kAnonymous, request->job_id()});
}

grpc::ServerUnaryReactor* JobsService::ListJobs(grpc::CallbackServerContext* context,
                                                const v1::ListJobsRequest* request,
                                                v1::ListJobsResponse* response) {
  const int64_t call = brain_->NewNumber();
  return Ask(brain_, call, NewAnswer(context, response, end_patience_), *request,
             event::ListJobs{call, kAnonymous, *request});
}

grpc::ServerUnaryReactor* JobsService::CancelJob(grpc::CallbackServerContext* context,
                                                 const v1::CancelJobRequest* request,
                                                 v1::Job* response) {
  const int64_t call = brain_->NewNumber();
  return Ask(brain_, call, NewAnswer(context, response, end_patience_), *request,
             event::CancelJob{call, kAnonymous, request->job_id()});
}

grpc::ServerUnaryReactor* JobsService::ReleaseState(grpc::CallbackServerContext* context,
                                                    const v1::ReleaseStateRequest* request,
                                                    v1::Job* response) {
  const int64_t call = brain_->NewNumber();
  return Ask(brain_, call, NewAnswer(context, response, end_patience_), *request,
             event::ReleaseState{call, kAnonymous, request->job_id()});
}

}  // namespace annulus
