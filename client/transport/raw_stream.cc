#include "client/transport/raw_stream.h"

#include <utility>

#include "grpcpp/generic/generic_stub.h"
#include "proto/rpc/callback_threads.h"
#include "proto/rpc/grpc_time.h"
#include "proto/wire/status.h"

namespace annulus {

std::shared_ptr<RawStream> RawStream::Start(Call call, Handlers handlers) {
  KeepCallbackThreads();
  std::shared_ptr<RawStream> stream(new RawStream());
  stream->self_ = stream;
  stream->handlers_ = std::move(handlers);
  if (call.deadline != absl::InfiniteFuture()) {
    stream->context_.set_deadline(absl::ToChronoTime(TimeOfDay(call.deadline)));
  }
  for (const auto& [key, value] : call.metadata) stream->context_.AddMetadata(key, value);
  // The headers go with the first write.
  stream->context_.set_initial_metadata_corked(true);
  grpc::GenericStub stub(call.channel);
  stub.PrepareBidiStreamingCall(&stream->context_, call.method, grpc::StubOptions(), stream.get());
  stream->AddHold();
  stream->StartCall();
  return stream;
}

void RawStream::StartWriteOf(grpc::ByteBuffer message, const grpc::WriteOptions& options) {
  MutexLock lock(&mutex_);
  if (!open_) return;
  out_.Swap(&message);
  StartWrite(&out_, options);
}

void RawStream::HalfClose() {
  MutexLock lock(&mutex_);
  if (open_) StartWritesDone();
}

void RawStream::Read() {
  MutexLock lock(&mutex_);
  if (open_) StartRead(&in_);
}

void RawStream::Cancel() {
  context_.TryCancel();
  Close();
}

void RawStream::Close() {
  {
    MutexLock lock(&mutex_);
    if (!open_) return;
    open_ = false;
  }
  RemoveHold();
}

void RawStream::OnReadDone(bool ok) {
  if (!ok) {
    Close();
    return;
  }
  grpc::ByteBuffer message;
  message.Swap(&in_);
  handlers_.on_read(std::move(message));
}

void RawStream::OnWriteDone(bool ok) {
  out_.Clear();
  if (ok) handlers_.on_written();
}

void RawStream::OnDone(const grpc::Status& status) {
  const std::shared_ptr<RawStream> self = std::move(self_);
  handlers_.on_done(FromGrpcStatus(status));
  handlers_ = Handlers();
}

}  // namespace annulus
