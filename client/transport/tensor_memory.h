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
#include "client/transport/tensor_strides.h"

namespace annulus {

// Input tensors in the caller's memory: packed rows, or `strides` says where their elements are.
// The memory must stay unchanged while a copy of `owner` lives. Sessions and gRPC hold copies while
// they may read, which can last a little longer than the call.
struct InputMemory {
  std::map<TensorId, const std::byte*> tensors;
  std::map<TensorId, TensorStrides> strides;
  std::shared_ptr<const void> owner;
};

// The memory for outputs. Nothing is written after the session has ended. A tensor that is
// absent is dropped.
struct OutputMemory {
  std::map<TensorId, std::byte*> tensors;
  std::map<TensorId, TensorStrides> strides;
};

// Writes verified chunks of a shard to the places of their rows. Drops tensors without memory.
void PlaceChunks(const std::vector<TensorInfo>& table, const ShardRows& rows,
                 const std::vector<TensorChunk>& chunks, const OutputMemory& outputs);

// The inputs of one shard as chunks with CRCs, tensor by tensor, in row order. A row with more than
// kMaxChunkBytes is split by heads. A tensor with strides is packed chunk by chunk; no more than
// the chunks in flight are copies.
class MemorySource : public ChunkSource {
 public:
  MemorySource(const std::vector<TensorInfo>& table, ShardRows rows, InputMemory inputs);
  State Next(ChunkBatch* batch) override;

 private:
  // Moves to the next tensor with rows left. False at the end.
  bool FindRows();
  TensorChunk TakeHeads(const TensorInfo& tensor);
  // The part of rows [rows.begin, rows.end) of the shard, packed.
  Payload Collect(const TensorInfo& tensor, Interval rows, int32_t head, int32_t heads) const;

  std::vector<TensorInfo> tensors_;
  ShardRows rows_;
  InputMemory inputs_;
  size_t tensor_ = 0;
  int64_t row_ = 0;
  int32_t head_ = 0;  // The next head of a row that is split.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_TENSOR_MEMORY_H_
