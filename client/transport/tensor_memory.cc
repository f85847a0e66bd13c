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
  chunk.data = Collect(tensor, {row_, row_ + 1}, head_, chunk.head_count);
  chunk.crc32c = chunk.data.Crc32c();
  head_ += chunk.head_count;
  if (head_ == tensor.heads) ++row_, head_ = 0;
  return chunk;
}

Payload MemorySource::Collect(const TensorInfo& tensor, Interval rows, int32_t head,
                              int32_t heads) const {
  const std::byte* const base = inputs_.tensors.at(tensor.id);
  const RowMap& map = rows_.of(tensor);
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  const auto strides = inputs_.strides.find(tensor.id);
  if (strides == inputs_.strides.end()) {
    if (heads == tensor.heads) return CollectRows(tensor, map, rows, base, inputs_.owner);
    return Payload::Shared(inputs_.owner,
                           base + map.Global(rows.begin) * tensor.row_bytes() + head * head_bytes,
                           heads * head_bytes);
  }
  const int64_t row_bytes = heads * head_bytes;
  return Payload::Filled(rows.length() * row_bytes, [&](std::byte* packed) {
    map.ForEachRun(rows, [&](int64_t local, int64_t global, int64_t count) {
      PackPart(tensor, strides->second, {global, count, head, heads}, base,
               packed + (local - rows.begin) * row_bytes);
    });
  });
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
    chunk.data = Collect(tensor, {row_, row_ + chunk.row_count}, 0, tensor.heads);
    chunk.crc32c = chunk.data.Crc32c();
    row_ += chunk.row_count;
    batch->Add(std::move(chunk), nullptr);
  }
  return batch->chunks.empty() ? State::kEnd : State::kLast;
}

namespace {

void PlaceStrided(const TensorInfo& tensor, const RowMap& rows, const TensorStrides& strides,
                  const TensorChunk& chunk, std::byte* base) {
  const int64_t row_bytes = tensor.row_bytes() / tensor.heads * chunk.head_count;
  std::vector<std::byte> packed(chunk.data.size());
  chunk.data.CopyTo(0, packed.size(), packed.data());
  rows.ForEachRun({chunk.row_begin, chunk.row_begin + chunk.row_count},
                  [&](int64_t local, int64_t global, int64_t count) {
                    UnpackPart(tensor, strides, {global, count, chunk.head_begin, chunk.head_count},
                               packed.data() + (local - chunk.row_begin) * row_bytes, base);
                  });
}

}  // namespace

void PlaceChunks(const std::vector<TensorInfo>& table, const ShardRows& rows,
                 const std::vector<TensorChunk>& chunks, const OutputMemory& outputs) {
  for (const TensorChunk& chunk : chunks) {
    const auto target = outputs.tensors.find(chunk.tensor);
    if (target == outputs.tensors.end()) continue;
    const TensorInfo& tensor = *FindTensor(table, chunk.tensor);
    const auto strides = outputs.strides.find(chunk.tensor);
    if (strides == outputs.strides.end()) {
      PlaceRows(tensor, rows.of(tensor), chunk, target->second);
    } else {
      PlaceStrided(tensor, rows.of(tensor), strides->second, chunk, target->second);
    }
  }
}

}  // namespace annulus
