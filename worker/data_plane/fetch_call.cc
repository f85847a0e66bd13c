#include "worker/data_plane/fetch_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/chunk_header.h"
#include "proto/wire/crc32c.h"

namespace annulus {
namespace {

void AddChecksums(std::vector<LeavingChunk>* chunks) {
  for (LeavingChunk& chunk : *chunks) chunk.crc32c = Crc32c(chunk.data, chunk.bytes);
}

}  // namespace

FetchCall::FetchCall(ShardBoard* board, CopyPool* pool, Stream* stream, bool held)
    : board_(board), pool_(pool), stream_(stream), held_(held), rate_(board->options().rate) {}

void FetchCall::Start(const v1::FetchShardRequest& request) {
  if (request.parts_size() > kMaxParts) {
    return Conclude(InvalidField(
        "LIMIT_EXCEEDED", "parts",
        absl::StrCat("has ", request.parts_size(), " parts, at most ", kMaxParts, " are allowed")));
  }
  {
    MutexLock lock(&mutex_);
    request_ = request;
  }
  board_->Join(shared_from_this(), request.ticket(), ShardBoard::Stage::kOutputs);
}

void FetchCall::OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard,
                        const v1::ShardReport& report) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    id_ = id;
    shard_ = std::move(shard);
    report_ = report;
    status = Plan();
    v1::FetchShardRequest().Swap(&request_);  // Clear() would keep the request's memory.
    if (status.ok()) return PrepareNext();
  }
  Conclude(status);
}

absl::Status FetchCall::Plan() {
  const ShardShape& shape = shard_->shape();
  if (request_.parts().empty()) {
    for (size_t i = 0; i < shape.tensors.size(); ++i) {
      const int64_t rows = shape.rows(shape.tensors[i]);
      if (shape.tensors[i].direction == Direction::kOutput && rows > 0)
        parts_.push_back({i, 0, rows});
    }
  }
  for (const v1::MissingRows& part : request_.parts()) {
    const auto tensor =
        std::find_if(shape.tensors.begin(), shape.tensors.end(), [&](const TensorInfo& info) {
          return static_cast<int>(info.id) == part.tensor() && info.direction == Direction::kOutput;
        });
    if (tensor == shape.tensors.end()) {
      return InvalidField("UNKNOWN_TENSOR", "parts.tensor", "is not an output of this job");
    }
    const int64_t rows = shape.rows(*tensor);
    if (part.row_begin() < 0 || part.row_count() < 1 || part.row_begin() > rows ||
        part.row_count() > rows - part.row_begin()) {
      return InvalidField(
          "CHUNK_OUT_OF_RANGE", "parts.row_begin",
          absl::StrCat("rows ", part.row_begin(), " + ", part.row_count(), " are not within the ",
                       rows, " rows of ", TensorName(tensor->id)));
    }
    parts_.push_back({static_cast<size_t>(tensor - shape.tensors.begin()), part.row_begin(),
                      part.row_begin() + part.row_count()});
  }
  std::reverse(parts_.begin(), parts_.end());
  return absl::OkStatus();
}

LeavingChunk FetchCall::CutRows(const TensorInfo& tensor, int64_t bytes, Part* part) {
  LeavingChunk chunk;
  chunk.row_begin = part->row_begin;
  chunk.row_count = std::min(part->row_end - part->row_begin, bytes / tensor.row_bytes());
  chunk.bytes = chunk.row_count * tensor.row_bytes();
  part->row_begin += chunk.row_count;
  return chunk;
}

// A head always fits into a chunk: validation refuses larger heads.
LeavingChunk FetchCall::CutHeads(const TensorInfo& tensor, int64_t bytes, Part* part) {
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  LeavingChunk chunk;
  chunk.row_begin = part->row_begin;
  chunk.row_count = 1;
  chunk.head_begin = part->head;
  chunk.head_count = static_cast<int32_t>(
      std::min<int64_t>(tensor.heads - part->head, std::max<int64_t>(1, bytes / head_bytes)));
  chunk.bytes = chunk.head_count * head_bytes;
  part->head += chunk.head_count;
  if (part->head == tensor.heads) {
    part->head = 0;
    ++part->row_begin;
  }
  return chunk;
}

std::optional<LeavingChunk> FetchCall::CutChunk(int64_t bytes) {
  if (parts_.empty()) return std::nullopt;
  Part& part = parts_.back();
  const TensorInfo& tensor = shard_->shape().tensors[part.index];
  const bool by_heads = tensor.row_bytes() > kMaxChunkBytes;
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  if (bytes < kMaxChunkBytes && bytes < (by_heads ? head_bytes : tensor.row_bytes())) {
    return std::nullopt;
  }
  LeavingChunk chunk = by_heads ? CutHeads(tensor, bytes, &part) : CutRows(tensor, bytes, &part);
  chunk.tensor = tensor.id;
  chunk.data = shard_->tensor_data(part.index) + chunk.row_begin * tensor.row_bytes() +
               chunk.head_begin * head_bytes;
  chunk.owner = shard_;
  const int32_t head_end = by_heads ? chunk.head_begin + chunk.head_count : tensor.heads;
  sent_.push_back(
      {part.index,
       {chunk.row_begin, chunk.row_begin + chunk.row_count, chunk.head_begin, head_end}});
  if (part.row_begin == part.row_end) parts_.pop_back();
  return chunk;
}

void FetchCall::PrepareNext() {
  Message message;
  while (message.chunks.size() < kMaxMessageChunks) {
    std::optional<LeavingChunk> chunk = CutChunk(kMaxChunkBytes - message.bytes);
    if (!chunk.has_value()) break;
    message.bytes += chunk->bytes;
    message.chunks.push_back(*std::move(chunk));
  }
  message.last = parts_.empty();
  if (message.bytes <= CopyPool::kInlineBytes) {
    AddChecksums(&message.chunks);
    prepared_ = std::move(message);
    return Pump();
  }
  pool_->Queue([self = shared_from_this(), message]() mutable {
    AddChecksums(&message.chunks);
    self->OnPrepared(std::move(message));
  });
}

void FetchCall::OnPrepared(Message message) {
  MutexLock lock(&mutex_);
  if (finished_) return;
  prepared_ = std::move(message);
  Pump();
}

void FetchCall::Release() {
  MutexLock lock(&mutex_);
  held_ = false;
  Pump();
}

void FetchCall::Pump() {
  if (held_ || writing_ || finished_ || !prepared_.has_value()) return;
  const Message message = *std::exchange(prepared_, std::nullopt);
  writing_ = true;
  finished_ = message.last;
  writing_bytes_ = message.bytes;
  rate_.Wait(board_->options().now());
  if (message.last) return stream_->WriteLast(message.chunks, report_);
  stream_->Write(message.chunks);
  PrepareNext();
}

void FetchCall::OnWritten(bool ok) {
  if (!ok) return OnCancelled();
  MutexLock lock(&mutex_);
  writing_ = false;
  rate_.Moved(writing_bytes_, board_->options().now());
  Pump();
}

void FetchCall::FinishLocked(const absl::Status& status) {
  if (std::exchange(finished_, true)) return;
  stream_->Finish(status);
}

void FetchCall::Conclude(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    FinishLocked(status);
    prepared_.reset();
    shard_.reset();
  }
  board_->Leave(this);
}

void FetchCall::OnCancelled() { Conclude(absl::CancelledError("the client cancelled the call")); }

void FetchCall::End(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    // A client that does not read would hold the call and its memory for ever. After ABORTED the
    // client may be about to read, because another call may have ended its job.
    if (writing_ && !done_) {
      absl::IsAborted(why) ? stream_->CancelUnread(writing_bytes_) : stream_->Cancel();
    }
  }
  Conclude(why);
}

void FetchCall::OnDone(bool delivered) {
  std::vector<std::pair<size_t, CellRect>> sent;
  ShardId id;
  {
    MutexLock lock(&mutex_);
    done_ = true;
    finished_ = true;
    shard_.reset();
    id = id_;
    if (delivered) sent.swap(sent_);
  }
  if (!sent.empty()) board_->Delivered(id, sent);
  board_->Leave(this);
}

std::optional<absl::Status> FetchCall::Stalled(absl::Time now) {
  MutexLock lock(&mutex_);
  if (!writing_ || done_ || !rate_.Stalled(now)) return std::nullopt;
  return StallError("DOWNLOAD_STALLED", "download", board_->options().rate);
}

}  // namespace annulus
