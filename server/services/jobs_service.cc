#include "server/services/jobs_service.h"

#include <atomic>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/status_macros.h"
#include "proto/rpc/grpc_time.h"
#include "proto/rpc/request_fields.h"
#include "proto/rpc/unary_call.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "proto/wire/tensor_stream.h"
#include "server/coordinator/state/submission.h"

namespace annulus {
namespace {

constexpr size_t kMaxEvents = 1024;
constexpr size_t kMaxBytes = 16 << 20;
constexpr size_t kLittle = 4 << 10;  // Not counted while the call continues.

absl::Status SlowClientError() {
  return MakeError(absl::StatusCode::kResourceExhausted, "the client does not read its events",
                   ErrorDetail{"SLOW_CLIENT", {}, {}, {}});
}

}  // namespace

JobStream::JobStream(CoordinatorLoop* loop, grpc::CallbackServerContext* context,
                     absl::Duration patience)
    : loop_(loop),
      number_(loop->NewNumber()),
      patience_(patience),
      box_(kMaxEvents, kMaxBytes),
      slow_reader_guard_(context) {}

JobStream* JobStream::Start(std::shared_ptr<JobStream> stream, Event event) {
  JobStream* reactor = stream.get();
  reactor->self_ = stream;
  const absl::Status taken =
      reactor->loop_->PostCall(reactor->number_, std::move(stream), std::move(event));
  if (!taken.ok()) reactor->Finish(taken);
  return reactor;
}

JobStream* JobStream::Refuse(std::shared_ptr<JobStream> stream, const absl::Status& status) {
  JobStream* reactor = stream.get();
  reactor->self_ = std::move(stream);
  reactor->Finish(status);
  return reactor;
}

void JobStream::Do(Box::Start start) {
  if (start == Box::Start::kNothing) return;
  if (start == Box::Start::kFinish)
    return grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(ToGrpcStatus(box_.end()));
  out_ = EncodeProto(box_.front());
  if (start == Box::Start::kWrite) return StartWrite(&out_);
  StartWriteAndFinish(&out_, grpc::WriteOptions(), ToGrpcStatus(box_.end()));
}

void JobStream::Send(v1::JobEvent event) {
  bool overflow = false;
  const Box::Start start = box_.Push(std::move(event), &overflow);
  if (overflow) return GiveUp();
  CountWaiting();
  Do(start);
}

void JobStream::SendLast(v1::JobEvent event) {
  bool overflow = false;
  const Box::Start start = box_.PushLast(std::move(event), &overflow);
  if (overflow) return GiveUp();
  BeginEnd();
  Do(start);
}

void JobStream::GiveUp() {
  {
    MutexLock lock(&mutex_);
    slow_reader_guard_.Begin(patience_);
  }
  Do(box_.End(SlowClientError(), Box::Flush::kNo));
  loop_->Post(event::CallGone{number_}).IgnoreError();
}

void JobStream::CountWaiting() {
  MutexLock lock(&mutex_);
  const size_t bytes = box_.bytes();
  slow_reader_guard_.Waits(bytes > kLittle ? bytes : 0);
}

void JobStream::BeginEnd() {
  MutexLock lock(&mutex_);
  slow_reader_guard_.Begin(patience_ + ReadingTime(box_.bytes()), box_.bytes());
}

void JobStream::Finish(const absl::Status& status) {
  const Box::Start start = box_.End(status, Box::Flush::kYes);
  BeginEnd();
  Do(start);
}

void JobStream::OnWriteDone(bool ok) {
  const Box::Start start = box_.Written(ok);
  CountWaiting();
  Do(start);
}

void JobStream::OnCancel() {
  loop_->Post(event::CallGone{number_}).IgnoreError();
  Do(box_.End(absl::CancelledError("the call was cancelled"), Box::Flush::kNo));
}

void JobStream::OnDone() {
  slow_reader_guard_.Over();
  // This may be the last reference: no member is accessed after it.
  std::shared_ptr<JobStream> self = std::move(self_);
}

namespace {

// A unary call that the coordinator loop answers with one message.
template <typename Response>
class UnaryAnswer final : public UnaryCall, public CallSink {
 public:
  UnaryAnswer(grpc::CallbackServerContext* context, absl::Duration patience,
              grpc::ByteBuffer* response)
      : UnaryCall(context, &answer_, patience, response) {}
  void Send(v1::JobEvent) override {}
  void Finish(const absl::Status& status) override { End(status); }
  void Answer(absl::StatusOr<Value> value) override {
    if (value.ok()) answer_ = std::get<Response>(*std::move(value));
    End(value.status());
  }

 private:
  Response answer_;
};

// The event of a request about one job.
template <typename Question, typename Request>
Event AboutJob(int64_t call, const Request& request) {
  return Question{call, kAnonymous, request.job_id()};
}

// The answer of a dry run. It takes long enough that its caller may leave meanwhile.
class PlanAnswer final : public UnaryCall, public CallSink {
 public:
  PlanAnswer(CoordinatorLoop* loop, grpc::CallbackServerContext* context,
             grpc::ByteBuffer* response, absl::Duration patience)
      : UnaryCall(context, &plan_, patience, response), loop_(loop), number_(loop->NewNumber()) {}

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
        reactor->loop_->PostCall(reactor->number_, std::move(call), std::move(event));
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
    loop_->Post(event::CallGone{number_}).IgnoreError();
    Answer(absl::CancelledError("the call was cancelled"));
  }

 private:
  CoordinatorLoop* const loop_;
  const int64_t number_;
  v1::Plan plan_;  // Written before the first end.
  std::atomic<bool> ended_{false};
};

absl::StatusOr<std::shared_ptr<const Submission>> PlanRequestOf(const grpc::ByteBuffer* arrived,
                                                                const CoordinatorOptions& options) {
  v1::PlanJobRequest request;
  RETURN_IF_ERROR(TakeRequest(arrived, &request));
  RETURN_IF_ERROR(CheckFieldsKnown(request, ""));
  v1::RunJobRequest job;
  job.mutable_spec()->Swap(request.mutable_spec());
  job.mutable_execution()->Swap(request.mutable_execution());
  return MakeSubmission(std::move(job), options);
}

absl::StatusOr<std::shared_ptr<const Submission>> RunRequestOf(const grpc::ByteBuffer* arrived,
                                                               const CoordinatorOptions& options) {
  v1::RunJobRequest request;
  RETURN_IF_ERROR(TakeRequest(arrived, &request));
  return MakeSubmission(std::move(request), options);
}

}  // namespace

template <typename Request, typename Response>
grpc::ServerUnaryReactor* JobsService::Ask(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* arrived,
                                           grpc::ByteBuffer* response,
                                           Event (*event_of)(int64_t call, const Request&)) {
  auto answer = std::make_shared<UnaryAnswer<Response>>(context, end_patience_, response);
  UnaryCall* const reactor = answer.get();
  reactor->Keep(answer);
  Request request;
  absl::Status taken = TakeQuestion(arrived, &request);
  if (taken.ok()) {
    const int64_t call = loop_->NewNumber();
    taken = loop_->PostCall(call, std::move(answer), event_of(call, request));
  }
  if (!taken.ok()) reactor->End(taken);
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::PlanJob(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* arrived,
                                               grpc::ByteBuffer* response) {
  auto call = std::make_shared<PlanAnswer>(loop_, context, response, end_patience_);
  return PlanAnswer::Start(std::move(call), PlanRequestOf(arrived, options_));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobsService::RunJob(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* arrived) {
  auto stream = std::make_shared<JobStream>(loop_, context, end_patience_);
  auto submission = RunRequestOf(arrived, options_);
  if (!submission.ok()) return JobStream::Refuse(std::move(stream), submission.status());
  const int64_t call = stream->number();
  return JobStream::Start(std::move(stream),
                          event::RunJob{call, kAnonymous, *std::move(submission),
                                        loop_->Now() + TimeLeft(context->deadline())});
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobsService::WatchJob(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* arrived) {
  auto stream = std::make_shared<JobStream>(loop_, context, end_patience_);
  v1::WatchJobRequest request;
  const absl::Status taken = TakeQuestion(arrived, &request);
  if (!taken.ok()) return JobStream::Refuse(std::move(stream), taken);
  const int64_t call = stream->number();
  return JobStream::Start(std::move(stream), AboutJob<event::WatchJob>(call, request));
}

grpc::ServerUnaryReactor* JobsService::GetJob(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* arrived,
                                              grpc::ByteBuffer* response) {
  return Ask<v1::GetJobRequest, v1::Job>(context, arrived, response, &AboutJob<event::GetJob>);
}

grpc::ServerUnaryReactor* JobsService::ListJobs(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* arrived,
                                                grpc::ByteBuffer* response) {
  return Ask<v1::ListJobsRequest, v1::ListJobsResponse>(
      context, arrived, response, [](int64_t call, const v1::ListJobsRequest& request) -> Event {
        return event::ListJobs{call, kAnonymous, request};
      });
}

grpc::ServerUnaryReactor* JobsService::CancelJob(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* arrived,
                                                 grpc::ByteBuffer* response) {
  return Ask<v1::CancelJobRequest, v1::Job>(context, arrived, response,
                                            &AboutJob<event::CancelJob>);
}

grpc::ServerUnaryReactor* JobsService::ReleaseState(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* arrived,
                                                    grpc::ByteBuffer* response) {
  return Ask<v1::ReleaseStateRequest, v1::Job>(context, arrived, response,
                                               &AboutJob<event::ReleaseState>);
}

}  // namespace annulus
