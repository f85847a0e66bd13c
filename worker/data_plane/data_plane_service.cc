#include "worker/data_plane/data_plane_service.h"

#include <memory>
#include <utility>

#include "proto/status.h"
#include "proto/tensor_stream.h"
#include "worker/data_plane/fetch_call.h"
#include "worker/data_plane/put_call.h"
#include "worker/data_plane/status_call.h"

namespace annulus {
namespace {

// The payload's slices as views, which its references keep alive.
PutMessage MessageOf(StreamStep step) {
  auto payload = std::make_shared<Payload>(std::move(step.chunk.data));
  PutMessage message;
  message.is_chunk = true;
  static_cast<ChunkHeader&>(message.chunk) = step.chunk;
  for (const grpc::Slice& slice : payload->slices()) {
    message.pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  message.storage = std::move(payload);
  return message;
}

class PutReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public PutCall::Stream {
 public:
  PutReactor(ShardBoard* board, CopyPool* pool, grpc::ByteBuffer* response)
      : response_(response), call_(std::make_shared<PutCall>(board, pool, this)) {
    call_->Start();
  }

  void ReadNext() override { StartRead(&buffer_); }
  void Finish(const absl::Status& status, const v1::ShardStatus& shard) override {
    if (status.ok()) *response_ = EncodeProto(shard);
    grpc::ServerReadReactor<grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return call_->OnHalfClose();
    grpc::ByteBuffer buffer;
    buffer.Swap(&buffer_);
    absl::StatusOr<StreamStep> step = DecodeStep(buffer);
    if (!step.ok()) return call_->OnMalformed(step.status());
    if (step->is_chunk()) return call_->OnMessage(MessageOf(*std::move(step)));
    v1::PutShardRequest request;
    const absl::Status decoded = DecodeProto(buffer, &request);
    if (!decoded.ok()) return call_->OnMalformed(decoded);
    PutMessage message;
    message.ticket = request.ticket();
    call_->OnMessage(std::move(message));
  }
  void OnCancel() override { call_->OnCancelled(); }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer* const response_;
  grpc::ByteBuffer buffer_;
  const std::shared_ptr<PutCall> call_;
};

class FetchReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public FetchCall::Stream {
 public:
  FetchReactor(ShardBoard* board, CopyPool* pool, grpc::CallbackServerContext* context,
               const grpc::ByteBuffer& request)
      : context_(context), call_(std::make_shared<FetchCall>(board, pool, this)) {
    v1::FetchShardRequest decoded;
    const absl::Status status = DecodeProto(request, &decoded);
    if (status.ok()) {
      call_->Start(decoded);
    } else {
      call_->End(status);
    }
  }

  void Write(const LeavingChunk& leaving, bool last) override {
    TensorChunk chunk;
    chunk.tensor = leaving.tensor;
    chunk.row_begin = leaving.row_begin;
    chunk.row_count = leaving.row_count;
    chunk.crc32c = leaving.crc32c;
    chunk.data = Payload::Shared(leaving.owner, leaving.data, leaving.bytes);
    buffer_ = EncodeChunk(chunk, ChunkStep::kBare);
    if (!last) return StartWrite(&buffer_);
    ended_well_ = true;
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void Finish(const absl::Status& status) override {
    ended_well_ = status.ok();
    grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
  }
  void Cancel() override { context_->TryCancel(); }

  void OnWriteDone(bool ok) override { call_->OnWritten(ok); }
  void OnCancel() override { call_->OnCancelled(); }
  void OnDone() override {
    call_->OnDone(ended_well_ && !context_->IsCancelled());
    delete this;
  }

 private:
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer buffer_;
  bool ended_well_ = false;  // Written under the call's lock; read when all is over.
  const std::shared_ptr<FetchCall> call_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* DataPlaneService::PutShard(grpc::CallbackServerContext*,
                                                                      grpc::ByteBuffer* response) {
  return new PutReactor(board_, pool_, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* DataPlaneService::FetchShard(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new FetchReactor(board_, pool_, context, *request);
}

grpc::ServerUnaryReactor* DataPlaneService::GetShardStatus(grpc::CallbackServerContext* context,
                                                           const v1::GetShardStatusRequest* request,
                                                           v1::ShardStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto call = std::make_shared<StatusCall>(
      board_, [reactor, response](absl::StatusOr<v1::ShardStatus> answer) {
        if (answer.ok()) *response = *std::move(answer);
        reactor->Finish(ToGrpcStatus(answer.status()));
      });
  call->Start(*request);
  return reactor;
}

}  // namespace annulus
