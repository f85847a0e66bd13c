#include "client/transport/shard_streams.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "annulus/v1/data_plane.pb.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/transport/session_errors.h"

namespace annulus {
namespace {

absl::Status WrongOutput(absl::string_view reason, absl::string_view what) {
  return MakeError(absl::StatusCode::kInternal, what, {std::string(reason), {}, {}, {}});
}

std::unique_ptr<v1::PutShardRequest> Opening(const std::string& ticket) {
  auto opening = std::make_unique<v1::PutShardRequest>();
  opening->set_ticket(ticket);
  return opening;
}

}  // namespace

ShardUpload::ShardUpload(Options* options)
    : ticket_(options->bytes <= kMaxWithTicket ? nullptr : Opening(options->ticket)),
      writer_(ticket_ == nullptr ? Opening(options->ticket) : nullptr, std::move(options->source),
              std::move(options->sent)) {}

void ShardUpload::Begin() {
  // The end of this write starts the writer (on_written).
  if (ticket_ != nullptr) return stream_->Write(EncodeProto(*ticket_));
  writer_.OnWritable(stream_.get());
}

std::shared_ptr<ShardUpload> ShardUpload::Start(Options options) {
  std::shared_ptr<ShardUpload> upload(new ShardUpload(&options));
  options.call.method = "/annulus.v1.DataPlane/PutShard";
  RawStream::Handlers handlers;
  // The answer has no more than the status: an incomplete shard is an error.
  handlers.on_read = [upload](grpc::ByteBuffer) { upload->stream_->Read(); };
  handlers.on_written = [upload] { upload->writer_.OnWritable(upload->stream_.get()); };
  handlers.on_done = [done = std::move(options.done)](absl::Status status) {
    done(std::move(status));
  };
  upload->stream_ = RawStream::Start(std::move(options.call), std::move(handlers));
  upload->stream_->Read();
  return upload;
}

absl::Status ChunkReceiver::Receive(TensorChunk* chunk) {
  const TensorInfo* tensor = FindTensor(table_, chunk->tensor);
  if (tensor == nullptr || tensor->direction != Direction::kOutput) {
    return WrongOutput("UNEXPECTED_OUTPUT",
                       absl::StrCat(TensorName(chunk->tensor), " is not an output of this job"));
  }
  const absl::Status checked = CheckChunk(*tensor, rows_.of(*tensor).rows(), chunk);
  if (!checked.ok()) return WrongOutput("UNEXPECTED_OUTPUT", checked.message());
  RETURN_IF_ERROR(VerifyCrc(*chunk));
  const CellRect cells = {chunk->row_begin, chunk->row_begin + chunk->row_count, chunk->head_begin,
                          chunk->head_begin + chunk->head_count};
  // The gateway sends rows of striped shards as they come, so a tensor may arrive in one piece for
  // each row.
  constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();
  ReceivedRanges& arrived =
      arrived_.try_emplace(chunk->tensor, rows_.of(*tensor).rows(), tensor->heads, kAnyNumber)
          .first->second;
  if (arrived.Intersects(cells)) {
    return WrongOutput("UNEXPECTED_OUTPUT",
                       absl::StrCat("rows ", chunk->row_begin, " + ", chunk->row_count, " of ",
                                    TensorName(chunk->tensor), " arrived twice"));
  }
  return arrived.Add(cells);
}

absl::Status ChunkReceiver::Complete() const {
  for (const TensorInfo& tensor : table_) {
    if (tensor.direction != Direction::kOutput) continue;
    const auto found = arrived_.find(tensor.id);
    const int64_t got = found == arrived_.end() ? 0 : found->second.cells();
    const int64_t expected = rows_.of(tensor).rows() * tensor.heads;
    if (got == expected) continue;
    const int64_t cell_bytes = tensor.row_bytes() / tensor.heads;
    return WrongOutput("INCOMPLETE_OUTPUT",
                       absl::StrCat("received ", got * cell_bytes, " of ", expected * cell_bytes,
                                    " bytes of ", TensorName(tensor.id)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> OutputReceiver::Receive(const grpc::ByteBuffer& message,
                                             const Credit& credit) {
  const auto receive = [&]() -> absl::StatusOr<bool> {
    v1::FetchShardResponse response;
    ASSIGN_OR_RETURN(std::vector<TensorChunk> chunks, DecodeChunks(message, &response));
    for (TensorChunk& chunk : chunks) RETURN_IF_ERROR(chunks_.Receive(&chunk));
    if (!chunks.empty()) sink_(chunks, credit);
    if (response.has_report()) report_(response.report());
    return response.has_report();
  };
  absl::StatusOr<bool> reported = receive();
  error_ = reported.status();
  return reported;
}

absl::Status OutputReceiver::Judge(absl::Status status) const {
  if (!error_.ok()) return error_;
  const absl::Status complete = chunks_.Complete();
  // Every row is verified. A worker that ends the stream because the job is over withdraws nothing.
  if (complete.ok() && CoordinatorDecides(status)) return complete;
  return status.ok() ? complete : status;
}

std::shared_ptr<ShardDownload> ShardDownload::Start(Options options) {
  std::shared_ptr<ShardDownload> download(new ShardDownload(std::move(options.outputs)));
  v1::FetchShardRequest request;
  request.set_ticket(options.ticket);
  options.call.method = "/annulus.v1.DataPlane/FetchShard";
  RawStream::Handlers handlers;
  handlers.on_read = [download](const grpc::ByteBuffer& message) {
    const Credit credit(nullptr, [stream = download->stream_](void*) { stream->Read(); });
    // After an error, the sink must not get another message.
    if (!download->receiver_.Receive(message, credit).ok()) download->stream_->Cancel();
  };
  handlers.on_written = [] {};
  handlers.on_done = [download, done = std::move(options.done)](absl::Status status) {
    done(download->receiver_.Judge(std::move(status)));
  };
  download->stream_ = RawStream::Start(std::move(options.call), std::move(handlers));
  download->stream_->Read();
  download->stream_->WriteLast(EncodeProto(request));
  return download;
}

}  // namespace annulus
