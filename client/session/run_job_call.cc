#include "client/session/run_job_call.h"

#include <utility>

#include "proto/wire/tensor_stream.h"

namespace annulus {
namespace {

class RemoteCall final : public RunJobCall, public std::enable_shared_from_this<RemoteCall> {
 public:
  explicit RemoteCall(Handlers handlers) : handlers_(std::move(handlers)) {}

  void Start(RawStream::Call call, const v1::RunJobRequest& request) {
    RawStream::Handlers stream;
    stream.on_read = [self = shared_from_this()](const grpc::ByteBuffer& message) {
      self->OnRead(message);
    };
    stream.on_written = [] {};
    stream.on_done = [self = shared_from_this()](absl::Status status) {
      const Handlers handlers = std::move(self->handlers_);
      handlers.on_done(self->malformed_.ok() ? std::move(status) : self->malformed_);
    };
    stream_ = RawStream::Start(std::move(call), std::move(stream));
    stream_->Read();
    stream_->WriteLast(EncodeProto(request));
  }
  void Cancel() override { stream_->Cancel(); }

 private:
  void OnRead(const grpc::ByteBuffer& message) {
    v1::JobEvent event;
    malformed_ = DecodeProto(message, &event);
    if (!malformed_.ok()) return stream_->Cancel();
    handlers_.on_event(std::move(event));
    stream_->Read();
  }

  Handlers handlers_;
  absl::Status malformed_;  // Belongs to the stream's callbacks.
  std::shared_ptr<RawStream> stream_;
};

}  // namespace

RunJobStarter RemoteRunJob(std::shared_ptr<grpc::Channel> coordinator, Metadata metadata) {
  return [coordinator = std::move(coordinator), metadata = std::move(metadata)](
             const v1::RunJobRequest& request, absl::Time deadline,
             RunJobCall::Handlers handlers) -> std::shared_ptr<RunJobCall> {
    auto call = std::make_shared<RemoteCall>(std::move(handlers));
    call->Start({coordinator, "/annulus.v1.Jobs/RunJob", deadline, metadata}, request);
    return call;
  };
}

}  // namespace annulus
