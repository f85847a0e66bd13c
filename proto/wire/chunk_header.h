#ifndef ANNULUS_PROTO_WIRE_CHUNK_HEADER_H_
#define ANNULUS_PROTO_WIRE_CHUNK_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// The largest number of tensor bytes in one chunk, and in all chunks of a message; the largest
// number of chunks of a message.
inline constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;
inline constexpr size_t kMaxMessageChunks = 64;

// Header of a chunk, and its rules. Pure functions without gRPC. Rows are the job's or a shard's,
// depending on the stream.
struct ChunkHeader {
  TensorId tensor = TensorId::kUnspecified;
  int64_t row_begin = 0;
  int64_t row_count = 0;
  int32_t head_begin = 0;
  int32_t head_count = 0;  // 0, with head_begin 0: all heads.
  std::optional<uint32_t> crc32c;
};

// Checks that the chunk has a row, lies inside `tensor` with `rows` rows, and has the right number
// of `bytes`. Replaces a head count of 0 by the tensor's. INVALID_ARGUMENT / CHUNK_OUT_OF_RANGE,
// TENSOR_BYTES_MISMATCH.
absl::Status CheckChunkHeader(const TensorInfo& tensor, int64_t rows, int64_t bytes,
                              ChunkHeader* chunk);

// DATA_LOSS / CHECKSUM_MISMATCH if the chunk has a CRC that differs from `got`.
absl::Status CheckChunkCrc(const ChunkHeader& chunk, uint32_t got);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_CHUNK_HEADER_H_
