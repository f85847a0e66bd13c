#include "server/services/job_stream.h"

#include <utility>

#include "attention/error.h"
#include "proto/status.h"

namespace annulus {
namespace {

constexpr size_t kMaxEvents = 1024;
constexpr size_t kMaxBytes = 16 << 20;
// For who does not read: until it is cancelled and is not told why.
constexpr absl::Duration kEndPatience = absl::Seconds(10);

absl::Status SlowClientError() {
  return MakeError(absl::StatusCode::kResourceExhausted, "the client does not read its events",
                   ErrorDetail{"SLOW_CLIENT", {}, {}, {}});
}

}  // namespace

JobStream::JobStream(Brain* brain, grpc::CallbackServerContext* context)
    : brain_(brain),
      number_(brain->NewNumber()),
      box_(kMaxEvents, kMaxBytes),
      unread_end_(context) {}

JobStream* JobStream::Start(std::shared_ptr<JobStream> stream, Event event) {
  JobStream* reactor = stream.get();
  reactor->self_ = stream;
  const absl::Status taken =
      reactor->brain_->PostCall(reactor->number_, std::move(stream), std::move(event));
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
  if (start == Box::Start::kWrite) StartWrite(&box_.front());
  if (start == Box::Start::kWriteAndFinish) {
    StartWriteAndFinish(&box_.front(), grpc::WriteOptions(), ToGrpcStatus(box_.end()));
  }
  if (start == Box::Start::kFinish) {
    grpc::ServerWriteReactor<v1::JobEvent>::Finish(ToGrpcStatus(box_.end()));
  }
}

void JobStream::Send(v1::JobEvent event) {
  bool overflow = false;
  Do(box_.Push(std::move(event), &overflow));
  if (overflow) GiveUp();
}

void JobStream::SendLast(v1::JobEvent event) {
  bool overflow = false;
  Do(box_.PushLast(std::move(event), &overflow));
  if (overflow) GiveUp();
}

void JobStream::GiveUp() {
  unread_end_.Begin(kEndPatience);
  Do(box_.End(SlowClientError(), Box::Flush::kNo));
  brain_->Post(event::CallGone{number_}).IgnoreError();
}

void JobStream::Finish(const absl::Status& status) { Do(box_.End(status, Box::Flush::kYes)); }

void JobStream::OnWriteDone(bool ok) { Do(box_.Written(ok)); }

void JobStream::OnCancel() {
  brain_->Post(event::CallGone{number_}).IgnoreError();
  Do(box_.End(absl::CancelledError("the call was cancelled"), Box::Flush::kNo));
}

void JobStream::OnDone() {
  unread_end_.Over();
  // May be the last reference: nothing of this is touched after it.
  std::shared_ptr<JobStream> self = std::move(self_);
}

}  // namespace annulus
