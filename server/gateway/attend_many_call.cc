#include "server/gateway/attend_many_call.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "proto/wire/tensor_stream.h"
#include "server/gateway/attend_request.h"

namespace annulus {
namespace {

// The caller has cancelled the call, so the end has no details to read.
grpc::Status Cancelled() {
  return grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled");
}

absl::Status TooManyCallsError() {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   "too many AttendMany calls wait for a job, and this one has waited longest",
                   {"TOO_MANY_CALLS", {}, {}, absl::Seconds(1)});
}

absl::Status CheckSmall(const StartedJob& job) {
  if (job.bytes_missing != 0) {
    return InvalidField(
        "STREAM_SEQUENCE", "chunks",
        absl::StrCat(
            "a job of AttendMany must be one message with all of its inputs; this one has ",
            std::abs(job.bytes_missing), " bytes ",
            job.bytes_missing > 0 ? "too few" : "too many"));
  }
  if (job.output_bytes > kMaxChunkBytes) {
    return InvalidField(
        "LIMIT_EXCEEDED", "start.spec",
        absl::StrCat("outputs of ", job.output_bytes, " bytes are above the limit of ",
                     kMaxChunkBytes, " for a job of AttendMany"));
  }
  return absl::OkStatus();
}

}  // namespace

AttendManyCall* AttendManyCall::Start(grpc::CallbackServerContext* context,
                                      const GatewayServiceOptions& options,
                                      ConcurrencyLimiter* gate, IdleCalls* resting) {
  std::shared_ptr<AttendManyCall> call(new AttendManyCall(context, options, gate, resting));
  call->call_self_ = call;
  call->Rest();
  return call.get();
}

void AttendManyCall::Rest() {
  const std::weak_ptr<AttendManyCall> weak = call_self_;
  // Without the lock, because another call may have to leave.
  std::shared_ptr<void> rest = resting_->Add([weak](IdleCalls::Why why) {
    const std::shared_ptr<AttendManyCall> self = weak.lock();
    if (self == nullptr) return;
    self->Leave(why == IdleCalls::Why::kClosed ? absl::OkStatus() : TooManyCallsError());
  });
  auto patience = std::make_unique<SharedTimer>(options_.first_message_wait, [weak] {
    const std::shared_ptr<AttendManyCall> self = weak.lock();
    if (self != nullptr) self->Leave(StartError("no complete job arrived in time"));
  });
  MutexLock lock(&mutex_);
  if (finished_) return;
  if (rest == nullptr) leaves_ = absl::OkStatus();
  if (leaves_.has_value()) return LeaveLocked();
  rest_ = std::move(rest);
  patience_ = std::move(patience);
  patience_->Begin();
  StartRead(&in_);
}

void AttendManyCall::Leave(const absl::Status& why_none) {
  MutexLock lock(&mutex_);
  if (!leaves_.has_value()) leaves_ = why_none;
  if (rest_ != nullptr && !finished_) LeaveLocked();
}

void AttendManyCall::LeaveLocked() {
  FinishLocked(has_had_job_ ? grpc::Status::OK : ToGrpcStatus(*leaves_));
}

void AttendManyCall::OnReadDone(bool ok) {
  grpc::ByteBuffer message;
  message.Swap(&in_);
  {
    MutexLock lock(&mutex_);
    rest_ = nullptr;
    patience_ = nullptr;
    if (finished_) return;
    if (!ok) return FinishLocked(grpc::Status::OK);
    leaves_.reset();  // Too late: a job has come.
    has_had_job_ = true;
  }
  uint64_t tag = 0;
  const absl::Status status = StartJob(message, &tag);
  if (status.ok()) return;
  MutexLock lock(&mutex_);
  answer_.SetTag(tag);
  EndJobLocked(answer_.Failed(InAttendRequest(status)));
}

absl::Status AttendManyCall::StartJob(const grpc::ByteBuffer& message, uint64_t* tag) {
  ASSIGN_OR_RETURN(StartedJob job,
                   ParseStart(message, DeadlineOf(*context_, options_), options_, tag));
  RETURN_IF_ERROR(CheckSmall(job));
  ASSIGN_OR_RETURN(std::shared_ptr<void> place, gate_->Enter());
  const std::shared_ptr<JobSession> session = JobSession::Make(std::move(job.options), this);
  {
    MutexLock lock(&mutex_);
    if (finished_) return absl::OkStatus();
    place_ = std::move(place);
    session_ = session;
    inputs_ = std::move(job.chunks);
    session_self_ = call_self_;
    answer_.SetTag(*tag);
  }
  session->Run();
  return absl::OkStatus();
}

void AttendManyCall::OnPlaced(const std::string& job_id, const v1::Plan& plan) {
  const bool is_short = IsShort(plan);
  std::vector<TensorChunk> inputs;
  std::shared_ptr<JobSession> session;
  {
    MutexLock lock(&mutex_);
    session = session_;
    inputs = std::exchange(inputs_, {});
    answer_.Accept(job_id, plan);
    if (!is_short) {
      WriteAnswerLocked();
    } else {
      answer_wait_ = std::make_unique<SharedTimer>(
          options_.small_answer_wait, [weak = std::weak_ptr<AttendManyCall>(session_self_)] {
            const std::shared_ptr<AttendManyCall> self = weak.lock();
            if (self == nullptr) return;
            MutexLock lock(&self->mutex_);
            self->WriteAnswerLocked();
          });
      answer_wait_->Begin();
    }
  }
  for (TensorChunk& chunk : inputs) session->Push(std::move(chunk), nullptr);
  session->CloseInputs();
}

void AttendManyCall::OnOutput(std::vector<TensorChunk> chunks, Credit credit) {
  MutexLock lock(&mutex_);
  if (answer_.Add(&chunks)) return;
  WriteAnswerLocked();
  for (grpc::ByteBuffer& message : answer_.Outputs(chunks)) {
    WriteLocked({std::move(message), credit});
  }
}

void AttendManyCall::OnDone(const absl::Status& status, const v1::JobStats& stats) {
  std::shared_ptr<AttendManyCall> self;  // These are destroyed without the lock.
  std::shared_ptr<JobSession> session;
  std::deque<Output> dropped;
  std::vector<TensorChunk> unsent;  // Inputs of a job that was not placed.
  MutexLock lock(&mutex_);
  unsent = std::exchange(inputs_, {});
  self = std::move(session_self_);
  session = std::move(session_);
  answer_wait_ = nullptr;
  if (!status.ok()) {
    while (outputs_.size() > 1) {
      dropped.push_back(std::move(outputs_.back()));
      outputs_.pop_back();
    }
  }
  EndJobLocked(status.ok() ? answer_.Done(stats) : answer_.Failed(InAttendRequest(status)));
}

void AttendManyCall::WriteAnswerLocked() {
  if (answer_.waits()) WriteLocked({answer_.Take(), nullptr});
}

void AttendManyCall::WriteLocked(Output output) {
  if (finished_ || cancelled_) return;
  outputs_.push_back(std::move(output));
  if (outputs_.size() == 1) StartWrite(&outputs_.front().message);
}

void AttendManyCall::EndJobLocked(grpc::ByteBuffer message) {
  if (finished_) return;
  if (cancelled_) return FinishLocked(Cancelled());
  ended_ = true;
  WriteLocked({std::move(message), nullptr});
  size_t bytes = 0;
  for (const Output& output : outputs_) bytes += output.message.Length();
  unread_.emplace(context_);
  unread_->Begin(options_.answer_patience + ReadingTime(bytes), bytes);
  leaving_ = gate_->Leave(std::move(place_));
}

void AttendManyCall::OnWriteDone(bool ok) {
  Output written;  // Destroyed after the lock: its credit may run other code.
  {
    MutexLock lock(&mutex_);
    written = std::move(outputs_.front());
    outputs_.pop_front();
    if (finished_ || !ok) return;  // OnCancel follows a broken call.
    if (!outputs_.empty()) return StartWrite(&outputs_.front().message);
    if (!std::exchange(ended_, false)) return;
    unread_.reset();
    leaving_ = nullptr;
  }
  Rest();
}

void AttendManyCall::FinishLocked(const grpc::Status& status) {
  finished_ = true;
  Finish(status);
}

void AttendManyCall::OnCancel() {
  std::shared_ptr<JobSession> session;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    session = session_;
    if (session == nullptr && !finished_) FinishLocked(Cancelled());
  }
  if (session != nullptr) session->Cancel();
}

void AttendManyCall::OnDone() {
  std::shared_ptr<AttendManyCall> self;
  MutexLock lock(&mutex_);
  unread_.reset();
  self = std::move(call_self_);
}

}  // namespace annulus
