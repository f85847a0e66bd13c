#ifndef ANNULUS_PROTO_WIRE_CHUNK_HEADER_H_
#define ANNULUS_PROTO_WIRE_CHUNK_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Most bytes of tensor in one chunk, and in all chunks of a message; most chunks of a message.
inline constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;
inline constexpr size_t kMaxMessageChunks = 64;

// What a chunk says of itself, and the rules for it; pure, and without gRPC. Rows are the job's or
// a shard's, as the stream has it.
struct ChunkHeader {
  TensorId tensor = TensorId::kUnspecified;
  int64_t row_begin = 0;
  int64_t row_count = 0;
  int32_t head_begin = 0;
  int32_t head_count = 0;  // 0 from head 0: all.
  std::optional<uint32_t> crc32c;
};

// Whether the chunk has a row, lies inside `tensor` with `rows` rows, and has the `bytes` that it
// says. A head count of 0 becomes the tensor's. INVALID_ARGUMENT: CHUNK_OUT_OF_RANGE,
// TENSOR_BYTES_MISMATCH.
absl::Status CheckChunkHeader(const TensorInfo& tensor, int64_t rows, int64_t bytes,
                              ChunkHeader* chunk);

// DATA_LOSS / CHECKSUM_MISMATCH when the chunk names a CRC and `got` is another.
absl::Status CheckChunkCrc(const ChunkHeader& chunk, uint32_t got);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_CHUNK_HEADER_H_
