#include "worker/staging/staged_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/numerics/wide_lse.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/streaming_writer.h"
#include "proto/wire/crc32c.h"

namespace annulus {
namespace {

constexpr int64_t kAlignment = 64;

absl::Status ChunkError(absl::string_view reason, absl::string_view field,
                        absl::string_view description) {
  return InvalidField(reason, absl::StrCat("chunk.", field), description);
}

absl::Status CheckCrc(const ArrivingChunk& chunk) {
  if (!chunk.crc32c.has_value()) return absl::OkStatus();
  uint32_t got = 0;
  for (absl::string_view piece : chunk.pieces) got = ExtendCrc32c(got, piece.data(), piece.size());
  return CheckChunkCrc(chunk, got);
}

// Reads the pieces of a chunk in order.
class PieceReader {
 public:
  explicit PieceReader(absl::Span<const absl::string_view> pieces) : pieces_(pieces) {}

  void Copy(size_t bytes, std::byte* target) {
    Advance(bytes, [&](const char* data, size_t size) {
      std::memcpy(target, data, size);
      target += size;
    });
  }
  void Stream(size_t bytes, std::byte* target, StreamingWriter* writer) {
    Advance(bytes, [&](const char* data, size_t size) {
      writer->Copy(target, data, size);
      target += size;
    });
  }
  bool Equal(size_t bytes, const std::byte* other) {
    bool equal = true;
    Advance(bytes, [&](const char* data, size_t size) {
      equal = equal && std::memcmp(other, data, size) == 0;
      other += size;
    });
    return equal;
  }

 private:
  template <typename Fn>
  void Advance(size_t bytes, Fn fn) {
    while (bytes > 0) {
      const size_t part = std::min(bytes, pieces_[index_].size() - offset_);
      if (part > 0) fn(pieces_[index_].data() + offset_, part);
      bytes -= part;
      offset_ += part;
      if (offset_ == pieces_[index_].size()) {
        ++index_;
        offset_ = 0;
      }
    }
  }

  absl::Span<const absl::string_view> pieces_;
  size_t index_ = 0;
  size_t offset_ = 0;
};

absl::Status CheckLender(const ShardShape& shape, const StagedShard* lender) {
  for (const TensorInfo& tensor : shape.tensors) {
    if (tensor.direction != Direction::kLent) continue;
    const TensorInfo* lent =
        lender == nullptr ? nullptr : FindTensor(lender->shape().tensors, tensor.id);
    if (lent != nullptr && lent->direction != Direction::kLent && lender->complete() &&
        lent->heads == tensor.heads && lent->dim == tensor.dim && lent->dtype == tensor.dtype &&
        lender->shape().rows(*lent) == shape.rows(tensor)) {
      continue;
    }
    return MakeError(absl::StatusCode::kInternal,
                     absl::StrCat("no kept shard has a matching ", TensorName(tensor.id)),
                     {"INVALID_PLAN", {}, {}, {}});
  }
  return absl::OkStatus();
}

}  // namespace

UploadCall::~UploadCall() {
  if (of_calls != nullptr) *of_calls -= fragments;
}

int64_t ShardShape::bytes(Direction direction) const {
  int64_t sum = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.direction == direction) sum += rows(tensor) * tensor.row_bytes();
  }
  return sum;
}

int64_t ShardShape::own_bytes() const {
  return bytes(Direction::kInput) + bytes(Direction::kOutput) + bytes(Direction::kKept);
}

struct StagedShard::Target {
  size_t index = 0;
  CellRect cells;
  int64_t head_bytes = 0;  // Bytes of one head of one row.
  int32_t heads = 0;       // Heads of the tensor.
};

absl::StatusOr<std::shared_ptr<StagedShard>> StagedShard::Create(
    PagePool* pool, ShardShape shape, std::function<void()> on_freed,
    std::shared_ptr<const StagedShard> lender) {
  RETURN_IF_ERROR(CheckLender(shape, lender.get()));
  const int64_t bytes = shape.own_bytes();
  const int64_t padding = kAlignment * static_cast<int64_t>(shape.tensors.size());
  ASSIGN_OR_RETURN(std::shared_ptr<std::byte> memory, pool->Allocate(bytes, padding));
  return std::shared_ptr<StagedShard>(
      new StagedShard(std::move(shape), std::move(memory), std::move(on_freed), std::move(lender)));
}

StagedShard::StagedShard(ShardShape shape, std::shared_ptr<std::byte> memory,
                         std::function<void()> on_freed, std::shared_ptr<const StagedShard> lender)
    : shape_(std::move(shape)),
      expected_bytes_(shape_.bytes(Direction::kInput)),
      output_bytes_(shape_.bytes(Direction::kOutput)),
      on_freed_(std::move(on_freed)),
      lender_(std::move(lender)),
      memory_(std::move(memory)) {
  int64_t offset = 0;
  for (const TensorInfo& tensor : shape_.tensors) {
    arrived_.emplace_back(shape_.rows(tensor), tensor.heads);
    if (tensor.direction == Direction::kLent) {
      data_.push_back(lender_->DataOf(tensor.id));
      continue;
    }
    data_.push_back(memory_.get() + offset);
    const int64_t bytes = shape_.rows(tensor) * tensor.row_bytes();
    offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

StagedShard::~StagedShard() {
  memory_.reset();
  lender_.reset();
  if (on_freed_) on_freed_();
}

absl::StatusOr<StagedShard::Target> StagedShard::Resolve(const ArrivingChunk& chunk) const {
  const auto tensor =
      std::find_if(shape_.tensors.begin(), shape_.tensors.end(), [&](const TensorInfo& candidate) {
        return candidate.id == chunk.tensor && candidate.direction == Direction::kInput;
      });
  if (tensor == shape_.tensors.end()) {
    return ChunkError("UNKNOWN_TENSOR", "tensor",
                      absl::StrCat(TensorName(chunk.tensor), " is not an input of this job"));
  }
  int64_t bytes = 0;
  for (absl::string_view piece : chunk.pieces) bytes += static_cast<int64_t>(piece.size());
  ChunkHeader header = chunk;
  RETURN_IF_ERROR(CheckChunkHeader(*tensor, shape_.rows(*tensor), bytes, &header));
  Target target;
  target.index = tensor - shape_.tensors.begin();
  target.cells = {header.row_begin, header.row_begin + header.row_count, header.head_begin,
                  header.head_begin + header.head_count};
  target.heads = tensor->heads;
  target.head_bytes = tensor->row_bytes() / tensor->heads;
  return target;
}

absl::Status StagedShard::Write(UploadCall* call, const ArrivingChunk& chunk) {
  ASSIGN_OR_RETURN(const Target target, Resolve(chunk));
  RETURN_IF_ERROR(CheckCrc(chunk));
  RETURN_IF_ERROR(CheckLse(target, chunk));
  RETURN_IF_ERROR(Note(call, target, chunk));
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Place(target, chunk));
  ReceivedRanges& arrived = arrived_[target.index];
  const int64_t before = arrived.cells();
  RETURN_IF_ERROR(arrived.Add(target.cells));
  received_bytes_ += (arrived.cells() - before) * target.head_bytes;
  call->bytes += (target.cells.row_end - target.cells.row_begin) *
                 (target.cells.head_end - target.cells.head_begin) * target.head_bytes;
  return absl::OkStatus();
}

absl::Status StagedShard::CheckLse(const Target& target, const ArrivingChunk& chunk) const {
  if (chunk.tensor != TensorId::kLse) return absl::OkStatus();
  if (FindTensor(shape_.tensors, TensorId::kLseRest) != nullptr) return absl::OkStatus();
  const CellRect& cells = target.cells;
  const int64_t heads = cells.head_end - cells.head_begin;
  std::vector<float> lse((cells.row_end - cells.row_begin) * heads);
  PieceReader(chunk.pieces)
      .Copy(lse.size() * sizeof(float), reinterpret_cast<std::byte*>(lse.data()));
  const auto coarse = std::find_if(lse.begin(), lse.end(), IsCoarse);
  if (coarse == lse.end()) return absl::OkStatus();
  const int64_t at = coarse - lse.begin();
  return InvalidField(
      "LSE_TOO_COARSE", "lse",
      absl::StrCat(
          "row ", cells.row_begin + at / heads, " of the shard, head ",
          cells.head_begin + at % heads, ", is ", *coarse,
          ": fp32 is too coarse for the weights of so large an LSE. Send lse_rest, which a forward "
          "job returns with spec.outputs.lse_rest, or name the kept state of the forward job"));
}

absl::Status StagedShard::Note(UploadCall* call, const Target& target,
                               const ArrivingChunk& chunk) const {
  if (call->seen.empty()) {
    for (const TensorInfo& tensor : shape_.tensors) {
      call->seen.emplace_back(shape_.rows(tensor), tensor.heads);
    }
    call->of_calls = fragments_;
  }
  ReceivedRanges& seen = call->seen[target.index];
  if (seen.Intersects(target.cells)) {
    return ChunkError("CHUNK_OVERLAP", "row_begin",
                      absl::StrCat("rows ", chunk.row_begin, " + ", chunk.row_count, " of ",
                                   TensorName(chunk.tensor), " were already sent in this call"));
  }
  const auto before = static_cast<int64_t>(seen.fragments());
  RETURN_IF_ERROR(seen.Add(target.cells));
  const int64_t more = static_cast<int64_t>(seen.fragments()) - before;
  call->fragments += more;
  const auto inputs =
      std::count_if(shape_.tensors.begin(), shape_.tensors.end(),
                    [](const TensorInfo& tensor) { return tensor.direction == Direction::kInput; });
  const int64_t most = inputs * static_cast<int64_t>(kMaxFragmentsOfInput);
  if (fragments_->fetch_add(more) + more <= most || more <= 0) return absl::OkStatus();
  return ChunkError(
      "TOO_MANY_FRAGMENTS", "row_begin",
      absl::StrCat("the inputs that the calls of this shard have sent are in more than ", most,
                   " separate pieces: send rows in order"));
}

absl::Status StagedShard::Place(const Target& target, const ArrivingChunk& chunk) {
  const ReceivedRanges& arrived = arrived_[target.index];
  const CellRect& cells = target.cells;
  const int64_t row_bytes = target.heads * target.head_bytes;
  std::byte* const base = data_[target.index];
  const bool cached = expected_bytes_ < kStreamedBytes;
  PieceReader reader(chunk.pieces);
  auto at = [&](int64_t row, int32_t head) {
    return base + row * row_bytes + head * target.head_bytes;
  };
  const auto other_bytes = [&](int64_t row) {
    return ChunkError("CHUNK_OVERLAP", "row_begin",
                      absl::StrCat("row ", row, " of ", TensorName(chunk.tensor),
                                   " was sent before with other bytes"));
  };
  const bool whole_rows = cells.head_end - cells.head_begin == target.heads;
  const int64_t runs = whole_rows ? 1 : chunk.row_count;
  const int64_t run_bytes =
      (chunk.row_count / runs) * (cells.head_end - cells.head_begin) * target.head_bytes;
  if (arrived.complete()) {
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t row = cells.row_begin + run;
      if (!reader.Equal(run_bytes, at(row, cells.head_begin))) return other_bytes(row);
    }
    return absl::OkStatus();
  }
  if (!arrived.Intersects(cells)) {
    StreamingWriter writer;
    for (int64_t run = 0; run < runs; ++run) {
      std::byte* const to = at(cells.row_begin + run, cells.head_begin);
      cached ? reader.Copy(run_bytes, to) : reader.Stream(run_bytes, to, &writer);
    }
    return absl::OkStatus();
  }
  for (int64_t row = cells.row_begin; row < cells.row_end; ++row) {
    for (int32_t head = cells.head_begin; head < cells.head_end; ++head) {
      if (!arrived.Contains(row, head)) {
        reader.Copy(target.head_bytes, at(row, head));
      } else if (!reader.Equal(target.head_bytes, at(row, head))) {
        return other_bytes(row);
      }
    }
  }
  return absl::OkStatus();
}

std::byte* StagedShard::DataOf(TensorId id) const {
  const TensorInfo* tensor = FindTensor(shape_.tensors, id);
  return data_[tensor - shape_.tensors.data()];
}

bool StagedShard::complete() const {
  MutexLock lock(&mutex_);
  return received_bytes_ == expected_bytes_;
}

int64_t StagedShard::received_bytes() const {
  MutexLock lock(&mutex_);
  return received_bytes_;
}

std::vector<MissingPiece> StagedShard::Missing(size_t limit) const {
  MutexLock lock(&mutex_);
  std::vector<MissingPiece> missing;
  for (size_t i = 0; i < shape_.tensors.size(); ++i) {
    if (shape_.tensors[i].direction != Direction::kInput) continue;
    for (const Interval& rows : arrived_[i].MissingRows(limit - missing.size())) {
      missing.push_back({shape_.tensors[i].id, rows});
    }
    if (missing.size() == limit) break;
  }
  return missing;
}

}  // namespace annulus
