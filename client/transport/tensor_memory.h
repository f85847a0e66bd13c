#ifndef ANNULUS_CLIENT_TRANSPORT_TENSOR_MEMORY_H_
#define ANNULUS_CLIENT_TRANSPORT_TENSOR_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "attention/spec/tensor_table.h"
#include "client/transport/chunk_writer.h"
#include "client/transport/scatter.h"

namespace annulus {

// Packed input tensors in the caller's memory. The memory stays unchanged while a copy of `owner`
// lives: sessions and gRPC hold copies for as long as they may read, a little beyond the end of a
// call.
struct InputMemory {
  std::map<TensorId, const std::byte*> tensors;
  std::shared_ptr<const void> owner;
};

// Where outputs go. Nothing is written after the session has ended. A tensor that is absent is
// dropped.
struct OutputMemory {
  std::map<TensorId, std::byte*> tensors;
};

// Writes checked chunks of a shard to where their rows belong.
void PlaceChunks(const std::vector<TensorInfo>& table, const ShardRows& rows,
                 const std::vector<TensorChunk>& chunks, const OutputMemory& outputs);

// The inputs of one shard as chunks with CRCs, tensor by tensor, in row order. A row of more than a
// chunk holds goes head by head.
class MemorySource : public ChunkSource {
 public:
  MemorySource(const std::vector<TensorInfo>& table, ShardRows rows, InputMemory inputs);
  State Next(ChunkBatch* batch) override;

 private:
  // Moves to the next tensor that has rows left; false at the end.
  bool FindRows();
  TensorChunk TakeHeads(const TensorInfo& tensor);

  std::vector<TensorInfo> tensors_;
  ShardRows rows_;
  InputMemory inputs_;
  size_t tensor_ = 0;
  int64_t row_ = 0;
  int32_t head_ = 0;  // Of a row that goes in parts.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_TENSOR_MEMORY_H_
