#include "server/services/job_stream.h"

#include <utility>

#include "base/error.h"
#include "proto/wire/status.h"
#include "proto/wire/tensor_stream.h"

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

}  // namespace annulus
