#include "server/gateway/gateway_call.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "proto/wire/status.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {

GatewayCall::GatewayCall(grpc::CallbackServerContext* context, const GatewayServiceOptions& options,
                         ConcurrencyLimiter* gate)
    : options_(options),
      gate_(gate),
      deadline_(DeadlineOf(*context, options)),
      slow_reader_guard_(context) {}

GatewayCall* GatewayCall::Start(grpc::CallbackServerContext* context,
                                const GatewayServiceOptions& options, ConcurrencyLimiter* gate) {
  std::shared_ptr<GatewayCall> call(new GatewayCall(context, options, gate));
  call->call_self_ = call;
  call->AwaitStart();
  return call.get();
}

void GatewayCall::AwaitStart() {
  MutexLock lock(&mutex_);
  first_message_ = std::make_unique<SharedTimer>(
      options_.first_message_wait, [weak = std::weak_ptr<GatewayCall>(call_self_)] {
        const std::shared_ptr<GatewayCall> self = weak.lock();
        if (self == nullptr) return;
        MutexLock lock(&self->mutex_);
        if (self->first_message_ == nullptr) return;
        (void)self->EndLocked(StartError("no start message arrived in time"));
      });
  first_message_->Begin();
  reading_ = true;
  StartRead(&in_);
}

void GatewayCall::OnReadDone(bool ok) {
  grpc::ByteBuffer message;
  message.Swap(&in_);
  std::shared_ptr<JobSession> session;
  bool first = false;
  {
    MutexLock lock(&mutex_);
    closed_ = !ok;
    first_message_ = nullptr;
    session = session_;
    first = session == nullptr;
    if (finished_ || end_) return;
  }
  if (first) {
    const absl::Status status =
        ok ? StartJob(message) : StartError("the stream ended before its start message");
    if (!status.ok()) End(status);
    return;  // OnPlaced requests the next read; it may have run already.
  }
  if (!ok) {
    return session->CloseInputs();
  }
  if (absl::Status status = TakeChunks(message); !status.ok()) {
    return session->Cancel(std::move(status));
  }
  {
    // Set only now: another thread's credit starts the next read. The read may bring the end of
    // the inputs, which must not overtake these chunks.
    MutexLock lock(&mutex_);
    reading_ = false;
  }
  ReadMore();
}

absl::Status GatewayCall::StartJob(const grpc::ByteBuffer& message) {
  uint64_t tag = 0;
  ASSIGN_OR_RETURN(StartedJob job, ParseStart(message, deadline_, options_, &tag));
  inputs_ = std::move(job.inputs);
  fits_ = job.bytes_missing == 0 && job.output_bytes <= kMaxChunkBytes;
  ASSIGN_OR_RETURN(place_, gate_->Enter());
  session_self_ = call_self_;
  const std::shared_ptr<JobSession> session = JobSession::Make(std::move(job.options), this);
  bool cancelled;
  {
    MutexLock lock(&mutex_);
    session_ = session;
    answer_.SetTag(tag);
    first_ = std::move(job.chunks);
    reading_ = false;
    cancelled = cancelled_;
  }
  session->Run();
  if (cancelled) session->Cancel();
  return absl::OkStatus();
}

absl::Status GatewayCall::TakeChunks(const grpc::ByteBuffer& message) {
  v1::AttendRequest request;
  ASSIGN_OR_RETURN(std::vector<TensorChunk> chunks,
                   DecodeChunks(message, &request, kMaxTicketMessageBytes));
  RETURN_IF_ERROR(CheckKnown(request, chunks));
  if (request.has_start()) return StartError("only the first message may have the start");
  if (chunks.empty())
    return InvalidField("STREAM_SEQUENCE", "chunks", "a message of the stream has no chunk");
  RETURN_IF_ERROR(CheckInputs(inputs_, &chunks));
  Push(std::move(chunks));
  return absl::OkStatus();
}

void GatewayCall::Push(std::vector<TensorChunk> chunks) {
  std::shared_ptr<JobSession> session;
  std::shared_ptr<GatewayCall> call;
  {
    MutexLock lock(&mutex_);
    if (call_self_ == nullptr || session_ == nullptr) return;
    call = call_self_;
    ++unsent_;
    session = session_;
  }
  // The last copy is destroyed when the message's bytes have been sent. There is then room for
  // another message.
  Credit credit(nullptr, [self = call](void*) {
    {
      MutexLock lock(&self->mutex_);
      --self->unsent_;
    }
    self->ReadMore();
  });
  for (TensorChunk& chunk : chunks) session->Push(std::move(chunk), credit);
}

void GatewayCall::ReadMore() {
  std::vector<TensorChunk> first;
  {
    MutexLock lock(&mutex_);
    if (!placed_ || session_ == nullptr || reading_ || finished_ || end_) return;
    first = std::exchange(first_, {});
    // The end of the inputs must not overtake these chunks.
    if (first.empty() && (closed_ || unsent_ >= options_.max_unsent_messages)) return;
    reading_ = true;
    if (first.empty()) return StartRead(&in_);
  }
  Push(std::move(first));
  {
    MutexLock lock(&mutex_);
    reading_ = false;
  }
  ReadMore();
}

void GatewayCall::OnPlaced(const std::string& job_id, const v1::Plan& plan) {
  {
    MutexLock lock(&mutex_);
    if (placed_) return;
  }
  const bool small = fits_ && IsShort(plan);
  {
    MutexLock lock(&mutex_);
    answer_.Accept(job_id, plan);
    if (!small) {
      WriteAnswerLocked();
    } else {
      answer_wait_ = std::make_unique<SharedTimer>(
          options_.small_answer_wait, [weak = std::weak_ptr<GatewayCall>(call_self_)] {
            if (const std::shared_ptr<GatewayCall> self = weak.lock()) self->WriteAnswer();
          });
      answer_wait_->Begin();
    }
    placed_ = true;
  }
  ReadMore();
}

void GatewayCall::OnOutput(std::vector<TensorChunk> chunks, Credit credit) {
  std::vector<grpc::ByteBuffer> messages;
  {
    MutexLock lock(&mutex_);
    if (answer_.Add(&chunks)) return;
    WriteAnswerLocked();
    messages = answer_.Outputs(chunks);
  }
  for (grpc::ByteBuffer& message : messages) Write({std::move(message), credit});
}

void GatewayCall::WriteAnswer() {
  MutexLock lock(&mutex_);
  WriteAnswerLocked();
}

void GatewayCall::WriteAnswerLocked() {
  if (!answer_.waits() || finished_ || end_) return;
  outputs_.push_back({answer_.Take(), nullptr});
  if (outputs_.size() == 1) WriteNextLocked();
}

void GatewayCall::OnDone(const absl::Status& status, const v1::JobStats& stats) {
  const std::shared_ptr<GatewayCall> self = std::move(session_self_);
  if (!status.ok()) {
    WriteAnswer();
    End(status);
  }
  std::shared_ptr<JobSession> session;  // Destroyed without the lock, with its request.
  MutexLock lock(&mutex_);
  session = std::move(session_);
  if (finished_ || end_) return;
  answer_wait_ = nullptr;
  const bool idle = outputs_.empty();
  outputs_.push_back({answer_.Done(stats), nullptr});
  (void)EndLocked(status);
  if (idle && !finished_) WriteNextLocked();
}

void GatewayCall::Write(Output output) {
  MutexLock lock(&mutex_);
  if (finished_ || end_) return;
  outputs_.push_back(std::move(output));
  if (outputs_.size() == 1) WriteNextLocked();
}

void GatewayCall::WriteNextLocked() {
  if (outputs_.size() > 1 || !end_ || !end_->ok()) return StartWrite(&outputs_.front().message);
  finished_ = true;
  StartWriteAndFinish(&outputs_.front().message, grpc::WriteOptions(), grpc::Status::OK);
}

void GatewayCall::OnWriteDone(bool ok) {
  Output written;  // Destroyed after the lock: its credit may run other code.
  MutexLock lock(&mutex_);
  written = std::move(outputs_.front());
  outputs_.pop_front();
  if (finished_ || !ok) return;  // OnCancel follows a broken call.
  if (!outputs_.empty()) return WriteNextLocked();
  if (end_) FinishLocked();
}

void GatewayCall::End(const absl::Status& status) {
  std::deque<Output> dropped;
  MutexLock lock(&mutex_);
  dropped = EndLocked(status);
}

std::deque<GatewayCall::Output> GatewayCall::EndLocked(const absl::Status& status) {
  std::deque<Output> dropped;
  if (finished_ || end_) return dropped;
  end_ = InAttendRequest(status);
  if (!status.ok() && outputs_.size() > 1) {
    dropped.assign(std::make_move_iterator(outputs_.begin() + 1),
                   std::make_move_iterator(outputs_.end()));
    outputs_.resize(1);
  }
  if (!outputs_.empty() && !cancelled_) {  // OnWriteDone finishes.
    AwaitReaderLocked();
    return dropped;
  }
  FinishLocked();
  return dropped;
}

void GatewayCall::FinishLocked() {
  finished_ = true;
  Finish(ToGrpcStatus(*end_));
}

void GatewayCall::AwaitReaderLocked() {
  size_t bytes = 0;
  for (const Output& output : outputs_) bytes += output.message.Length();
  if (!end_->ok()) return slow_reader_guard_.Begin(options_.end_patience, bytes);
  slow_reader_guard_.Begin(options_.answer_patience + ReadingTime(bytes), bytes);
  leaving_ = gate_->Leave(std::move(place_));
}

void GatewayCall::OnCancel() {
  std::shared_ptr<JobSession> session;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    session = session_;
    if (end_ && !finished_) FinishLocked();
  }
  if (session != nullptr) {
    session->Cancel();
  } else {
    End(absl::CancelledError("the call was cancelled"));
  }
}

void GatewayCall::OnDone() {
  slow_reader_guard_.Over();
  std::shared_ptr<GatewayCall> self;
  MutexLock lock(&mutex_);
  self = std::move(call_self_);
}

}  // namespace annulus
