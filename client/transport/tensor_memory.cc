#include "client/transport/tensor_memory.h"

#include <algorithm>
#include <utility>

namespace annulus {

MemorySource::MemorySource(const std::vector<TensorInfo>& table, ShardRows rows, InputMemory inputs)
    : rows_(std::move(rows)), inputs_(std::move(inputs)) {
  for (const TensorInfo& tensor : table) {
    if (tensor.direction == Direction::kInput) tensors_.push_back(tensor);
  }
}

bool MemorySource::FindRows() {
  while (tensor_ < tensors_.size() && row_ == rows_.of(tensors_[tensor_]).rows()) {
    ++tensor_;
    row_ = 0;
  }
  return tensor_ < tensors_.size();
}

TensorChunk MemorySource::TakeHeads(const TensorInfo& tensor) {
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  TensorChunk chunk;
  chunk.tensor = tensor.id;
  chunk.row_begin = row_;
  chunk.row_count = 1;
  chunk.head_begin = head_;
  chunk.head_count = static_cast<int32_t>(
      std::clamp<int64_t>(kMaxChunkBytes / head_bytes, 1, tensor.heads - head_));
  chunk.data =
      Payload::Shared(inputs_.owner,
                      inputs_.tensors.at(tensor.id) +
                          rows_.of(tensor).Global(row_) * tensor.row_bytes() + head_ * head_bytes,
                      chunk.head_count * head_bytes);
  chunk.crc32c = chunk.data.Crc32c();
  head_ += chunk.head_count;
  if (head_ == tensor.heads) ++row_, head_ = 0;
  return chunk;
}

ChunkSource::State MemorySource::Next(ChunkBatch* batch) {
  while (FindRows()) {
    const TensorInfo& tensor = tensors_[tensor_];
    if (tensor.row_bytes() > kMaxChunkBytes) {
      if (!batch->chunks.empty()) return State::kChunks;
      batch->Add(TakeHeads(tensor), nullptr);
      continue;
    }
    if (!batch->HasRoomFor(tensor.row_bytes())) return State::kChunks;
    const RowMap& rows = rows_.of(tensor);
    const int64_t room = (kMaxChunkBytes - batch->bytes) / tensor.row_bytes();
    TensorChunk chunk;
    chunk.tensor = tensor.id;
    chunk.row_begin = row_;
    chunk.row_count = std::min(std::max<int64_t>(room, 1), rows.rows() - row_);
    chunk.head_count = tensor.heads;
    chunk.data = CollectRows(tensor, rows, {row_, row_ + chunk.row_count},
                             inputs_.tensors.at(tensor.id), inputs_.owner);
    chunk.crc32c = chunk.data.Crc32c();
    row_ += chunk.row_count;
    batch->Add(std::move(chunk), nullptr);
  }
  return batch->chunks.empty() ? State::kEnd : State::kLast;
}

void PlaceChunks(const std::vector<TensorInfo>& table, const ShardRows& rows,
                 const std::vector<TensorChunk>& chunks, const OutputMemory& outputs) {
  for (const TensorChunk& chunk : chunks) {
    const auto target = outputs.tensors.find(chunk.tensor);
    if (target == outputs.tensors.end()) continue;
    const TensorInfo& tensor = *FindTensor(table, chunk.tensor);
    PlaceRows(tensor, rows.of(tensor), chunk, target->second);
  }
}

}  // namespace annulus
