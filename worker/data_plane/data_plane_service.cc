#include "worker/data_plane/data_plane_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "proto/rpc/unary_call.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "proto/wire/tensor_stream.h"
#include "worker/data_plane/exchange_call.h"
#include "worker/data_plane/fetch_call.h"
#include "worker/data_plane/put_call.h"
#include "worker/data_plane/status_call.h"

namespace annulus {
namespace {

// Makes views of the payloads' slices. Their references keep them alive.
PutMessage MessageOf(std::string ticket, std::vector<TensorChunk> chunks) {
  PutMessage message;
  message.ticket = std::move(ticket);
  auto storage = std::make_shared<std::vector<TensorChunk>>(std::move(chunks));
  for (const TensorChunk& chunk : *storage) {
    PutMessage::Part& part = message.parts.emplace_back();
    part.header = chunk;
    for (const grpc::Slice& slice : chunk.data.slices()) {
      part.pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  message.storage = std::move(storage);
  return message;
}

std::vector<TensorChunk> ChunksOf(const std::vector<LeavingChunk>& leaving) {
  std::vector<TensorChunk> chunks;
  for (const LeavingChunk& one : leaving) {
    TensorChunk& chunk = chunks.emplace_back();
    chunk.tensor = one.tensor;
    chunk.row_begin = one.row_begin;
    chunk.row_count = one.row_count;
    chunk.head_begin = one.head_begin;
    chunk.head_count = one.head_count;
    chunk.crc32c = one.crc32c;
    chunk.data = Payload::Shared(one.owner, one.data, one.bytes);
  }
  return chunks;
}

absl::StatusOr<PutMessage> DecodePut(grpc::ByteBuffer* arrived) {
  grpc::ByteBuffer buffer;
  buffer.Swap(arrived);
  v1::PutShardRequest request;
  ASSIGN_OR_RETURN(std::vector<TensorChunk> chunks,
                   DecodeChunks(buffer, &request, kMaxTicketMessageBytes));
  RETURN_IF_ERROR(CheckKnown(request, chunks));
  return MessageOf(request.ticket(), std::move(chunks));
}

absl::StatusOr<v1::FetchShardRequest> DecodeFetch(const grpc::ByteBuffer& arrived) {
  v1::FetchShardRequest request;
  RETURN_IF_ERROR(DecodeSmallProto(arrived, &request));
  RETURN_IF_ERROR(CheckFieldsKnown(request, ""));
  RETURN_IF_ERROR(CheckEachKnown(request.parts(), "parts"));
  return request;
}

// `report` is set with a shard's last chunks, otherwise nullptr.
grpc::ByteBuffer EncodeFetched(const std::vector<LeavingChunk>& chunks,
                               const v1::ShardReport* report) {
  if (report == nullptr) return EncodeChunks(ChunksOf(chunks));
  v1::FetchShardResponse response;
  *response.mutable_report() = *report;
  return EncodeChunks(ChunksOf(chunks), &response);
}

class PutReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public PutCall::Stream {
 public:
  PutReactor(ShardBoard* board, CopyPool* pool, grpc::CallbackServerContext* context,
             grpc::ByteBuffer* response, absl::Duration answer_patience)
      : response_(response),
        answer_patience_(answer_patience),
        slow_reader_guard_(context),
        call_(std::make_shared<PutCall>(board, pool, this)) {
    call_->Start();
  }

  void ReadNext() override { StartRead(&buffer_); }
  void Finish(const absl::Status& status, const v1::ShardStatus& shard) override {
    if (status.ok()) {
      *response_ = EncodeProto(shard);
      const size_t bytes = response_->Length();
      slow_reader_guard_.Begin(answer_patience_ + ReadingTime(bytes), bytes);
    }
    grpc::ServerReadReactor<grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return call_->OnHalfClose();
    absl::StatusOr<PutMessage> message = DecodePut(&buffer_);
    message.ok() ? call_->OnMessage(*std::move(message)) : call_->OnMalformed(message.status());
  }
  void OnCancel() override { call_->OnCancelled(); }
  void OnDone() override {
    slow_reader_guard_.Over();
    delete this;
  }

 private:
  grpc::ByteBuffer* const response_;
  const absl::Duration answer_patience_;
  SlowReaderGuard slow_reader_guard_;
  grpc::ByteBuffer buffer_;
  const std::shared_ptr<PutCall> call_;
};

class FetchReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public FetchCall::Stream {
 public:
  FetchReactor(ShardBoard* board, CopyPool* pool, grpc::CallbackServerContext* context,
               const grpc::ByteBuffer& request, absl::Duration end_patience)
      : context_(context),
        end_patience_(end_patience),
        slow_reader_guard_(context),
        call_(std::make_shared<FetchCall>(board, pool, this)) {
    const absl::StatusOr<v1::FetchShardRequest> decoded = DecodeFetch(request);
    decoded.ok() ? call_->Start(*decoded) : call_->End(decoded.status());
  }

  void Write(const std::vector<LeavingChunk>& chunks) override {
    buffer_ = EncodeFetched(chunks, nullptr);
    StartWrite(&buffer_);
  }
  void WriteLast(const std::vector<LeavingChunk>& chunks, const v1::ShardReport& report) override {
    buffer_ = EncodeFetched(chunks, &report);
    ended_well_ = true;
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void Finish(const absl::Status& status) override {
    ended_well_ = status.ok();
    grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
  }
  void Cancel() override { context_->TryCancel(); }
  void CancelUnread(int64_t bytes) override { slow_reader_guard_.Begin(end_patience_, bytes); }

  void OnWriteDone(bool ok) override { call_->OnWritten(ok); }
  void OnCancel() override { call_->OnCancelled(); }
  void OnDone() override {
    slow_reader_guard_.Over();
    buffer_.Clear();  // The buffer refers to the shard, whose memory can be freed now.
    call_->OnDone(ended_well_ && !context_->IsCancelled());
    delete this;
  }

 private:
  grpc::CallbackServerContext* const context_;
  const absl::Duration end_patience_;
  SlowReaderGuard slow_reader_guard_;
  grpc::ByteBuffer buffer_;
  bool ended_well_ = false;  // Written under the call's lock; read when the call is over.
  const std::shared_ptr<FetchCall> call_;
};

class ExchangeReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                              public ExchangeCall::Stream {
 public:
  ExchangeReactor(ShardBoard* board, CopyPool* pool, grpc::CallbackServerContext* context,
                  absl::Duration end_patience)
      : context_(context),
        end_patience_(end_patience),
        slow_reader_guard_(context),
        call_(std::make_shared<ExchangeCall>(board, pool, this)) {
    call_->Start();
  }

  void ReadNext() override { StartRead(&in_); }
  void Write(const std::vector<LeavingChunk>& chunks, const v1::ShardReport* report) override {
    out_ = EncodeFetched(chunks, report);
    StartWrite(&out_);
  }
  void Finish(const absl::Status& status) override {
    grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
  }
  void Cancel() override { context_->TryCancel(); }
  void CancelUnread(int64_t bytes) override { slow_reader_guard_.Begin(end_patience_, bytes); }

  void OnReadDone(bool ok) override {
    if (!ok) return call_->OnHalfClose();
    absl::StatusOr<PutMessage> message = DecodePut(&in_);
    message.ok() ? call_->OnMessage(*std::move(message)) : call_->OnMalformed(message.status());
  }
  void OnWriteDone(bool ok) override {
    out_.Clear();  // The buffer refers to the shard, whose memory can be freed now.
    call_->OnWritten(ok);
  }
  void OnCancel() override { call_->OnCancelled(); }
  void OnDone() override {
    slow_reader_guard_.Over();
    out_.Clear();
    call_->OnDone();
    delete this;
  }

 private:
  grpc::CallbackServerContext* const context_;
  const absl::Duration end_patience_;
  SlowReaderGuard slow_reader_guard_;
  grpc::ByteBuffer in_, out_;
  const std::shared_ptr<ExchangeCall> call_;
};

class StatusReactor final : public UnaryCall {
 public:
  StatusReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
                absl::Duration patience)
      : UnaryCall(context, &shard_, patience, response) {}

  void Answer(absl::StatusOr<v1::ShardStatus> answer) {
    if (answer.ok()) shard_ = *std::move(answer);
    End(answer.status());
  }

 private:
  v1::ShardStatus shard_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* DataPlaneService::PutShard(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
  return new PutReactor(board_, pool_, context, response, patience_.answer);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* DataPlaneService::FetchShard(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new FetchReactor(board_, pool_, context, *request, patience_.end);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* DataPlaneService::ExchangeShards(
    grpc::CallbackServerContext* context) {
  return new ExchangeReactor(board_, pool_, context, patience_.end);
}

grpc::ServerUnaryReactor* DataPlaneService::GetShardStatus(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* arrived,
                                                           grpc::ByteBuffer* response) {
  const auto reactor = std::make_shared<StatusReactor>(context, response, patience_.answer);
  reactor->Keep(reactor);
  reactor->Holds(arrived->Length());
  v1::GetShardStatusRequest request;
  absl::Status s = DecodeSmallProto(*arrived, &request);
  if (s.ok()) s = CheckFieldsKnown(request, "");
  if (s.ok()) {
    const auto call = std::make_shared<StatusCall>(
        board_,
        [reactor](absl::StatusOr<v1::ShardStatus> answer) { reactor->Answer(std::move(answer)); });
    call->Start(request);
  } else {
    reactor->End(s);
  }
  return reactor.get();
}

}  // namespace annulus
