#include "client/tensor_memory.h"

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

ChunkSource::State MemorySource::Next(TensorChunk* chunk, Credit* credit) {
  credit->reset();
  if (!FindRows()) return State::kEnd;
  const TensorInfo& tensor = tensors_[tensor_];
  const RowMap& rows = rows_.of(tensor);
  *chunk = TensorChunk();
  chunk->tensor = tensor.id;
  chunk->row_begin = row_;
  chunk->row_count = std::min(RowsPerChunk(tensor), rows.rows() - row_);
  chunk->head_count = tensor.heads;
  chunk->data = CollectRows(tensor, rows, {row_, row_ + chunk->row_count},
                            inputs_.tensors.at(tensor.id), inputs_.owner);
  chunk->crc32c = chunk->data.Crc32c();
  row_ += chunk->row_count;
  return FindRows() ? State::kChunk : State::kLast;
}

}  // namespace annulus
