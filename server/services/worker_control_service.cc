#include "server/services/worker_control_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "proto/rpc/shared_timer.h"
#include "proto/rpc/slow_reader_guard.h"
#include "proto/wire/payload.h"
#include "proto/wire/status.h"
#include "proto/wire/tensor_stream.h"
#include "server/coordinator/state/errors.h"
#include "server/services/outbox.h"

namespace annulus {
namespace {

constexpr size_t kMaxCommands = 8192;
constexpr size_t kMaxBytes = 256 << 20;

grpc::ByteBuffer Encode(const Command& command) {
  std::vector<grpc::Slice> slices = {grpc::Slice(command.Opening())};
  if (command.spec != nullptr) {
    const Payload spec = Payload::Shared(command.spec, command.spec->data(), command.spec->size());
    slices.insert(slices.end(), spec.slices().begin(), spec.slices().end());
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// One worker's stream. Reads one message at a time and posts it; writes the coordinator loop's
// commands. Lives until gRPC is done with it and the coordinator loop has released it.
class WorkerStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public LinkSink {
 public:
  WorkerStream(CoordinatorLoop* loop, grpc::CallbackServerContext* context,
               absl::Duration end_patience)
      : loop_(loop),
        number_(loop->NewNumber()),
        end_patience_(end_patience),
        box_(kMaxCommands, kMaxBytes),
        slow_reader_guard_(context) {}

  static WorkerStream* Start(std::shared_ptr<WorkerStream> stream, absl::Duration first_message) {
    WorkerStream* reactor = stream.get();
    reactor->self_ = std::move(stream);
    reactor->AwaitFirst(first_message);
    reactor->Read();
    return reactor;
  }

  void Send(Command command) override {
    bool overflow = false;
    Do(box_.Push(std::move(command), &overflow));
    if (overflow) GiveUp(ProtocolError("the worker does not read its commands"));
  }
  void Close(const absl::Status& status) override {
    slow_reader_guard_.Begin(end_patience_);  // No bytes: commands displace no client's answers.
    Do(box_.End(status, Box::Flush::kYes));
  }

  void OnReadDone(bool ok) override {
    {
      MutexLock lock(&mutex_);
      first_message_ = nullptr;
    }
    if (!ok) return GiveUp(absl::OkStatus());
    event::WorkerReported said{number_, {}};
    if (!DecodeProto(in_, &said.event).ok()) {
      return GiveUp(ProtocolError("a message cannot be parsed"));
    }
    in_.Clear();
    // The first message registers the stream.
    const absl::Status taken = std::exchange(known_, true)
                                   ? loop_->Post(std::move(said))
                                   : loop_->PostLink(number_, self_, std::move(said));
    if (!taken.ok()) return GiveUp(taken);
    Read();
  }
  void OnWriteDone(bool ok) override {
    out_.Clear();
    Do(box_.Written(ok));
  }
  void OnCancel() override { GiveUp(absl::CancelledError("the stream was cancelled")); }
  // This may be the last reference: no member is accessed after it.
  void OnDone() override {
    slow_reader_guard_.Over();
    std::shared_ptr<WorkerStream> self = std::move(self_);
  }

 private:
  using Box = Outbox<Command>;

  void Do(Box::Start start) {
    if (start == Box::Start::kNothing) return;
    if (start != Box::Start::kFinish) out_ = Encode(box_.front());
    if (start == Box::Start::kWrite) return StartWrite(&out_);
    MutexLock lock(&mutex_);
    finished_ = true;
    const grpc::Status end = ToGrpcStatus(box_.end());
    start == Box::Start::kFinish ? Finish(end)
                                 : StartWriteAndFinish(&out_, grpc::WriteOptions(), end);
  }
  void AwaitFirst(absl::Duration wait) EXCLUDES(mutex_) {
    const auto over = [weak = std::weak_ptr<WorkerStream>(self_)] {
      const std::shared_ptr<WorkerStream> self = weak.lock();
      if (self != nullptr && self->MissesFirst()) {
        self->GiveUp(ProtocolError("no message arrived in time"));
      }
    };
    MutexLock lock(&mutex_);
    first_message_ = std::make_unique<SharedTimer>(wait, over);
    first_message_->Begin();
  }
  bool MissesFirst() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return first_message_ != nullptr;
  }
  // Nothing may be started after Finish, and the coordinator loop may finish the stream while a
  // message is being posted. The last message may have been posted after WorkerGone, so WorkerGone
  // is posted again.
  void Read() EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (!finished_) return StartRead(&in_);
    }
    loop_->Post(event::WorkerGone{number_}).IgnoreError();
  }
  void GiveUp(const absl::Status& status) {
    slow_reader_guard_.Begin(end_patience_);
    loop_->Post(event::WorkerGone{number_}).IgnoreError();
    Do(box_.End(status, Box::Flush::kNo));
  }

  CoordinatorLoop* const loop_;
  const int64_t number_;
  const absl::Duration end_patience_;
  Box box_;
  SlowReaderGuard slow_reader_guard_;
  grpc::ByteBuffer in_, out_;
  bool known_ = false;  // To the coordinator loop. Used by the reads, which are sequential.
  std::shared_ptr<WorkerStream> self_;
  Mutex mutex_;
  bool finished_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<SharedTimer> first_message_ GUARDED_BY(mutex_);  // Until the first message.
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* WorkerControlService::Connect(
    grpc::CallbackServerContext* context) {
  return WorkerStream::Start(std::make_shared<WorkerStream>(loop_, context, end_patience_),
                             first_message_wait_);
}

}  // namespace annulus
