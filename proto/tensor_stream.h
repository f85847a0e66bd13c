#ifndef ANNULUS_PROTO_TENSOR_STREAM_H_
#define ANNULUS_PROTO_TENSOR_STREAM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/tensor_table.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/chunk_header.h"
#include "proto/payload.h"

namespace annulus {

// Chunks of tensors ⇄ gRPC messages without a copy of the payload. The only place that knows how a
// chunk looks on the wire, how large it may be, and what its CRC covers. Pure functions; nothing
// here waits.

// Most bytes of tensor in one chunk, and of any message on a stream of chunks.
inline constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxStreamMessageBytes = int64_t{4} << 20;

// annulus.v1.Chunk: a rectangle of one tensor.
struct TensorChunk : ChunkHeader {
  Payload data;
};

// How a chunk is wrapped in a message of a stream.
enum class ChunkStep : int {
  kBare = 0,  // FetchShard: the message is the chunk.
  kStep = 2,  // Field 2 of AttendRequest, AttendResponse and PutShardRequest.
};

// The message of `chunk`: a header of a few bytes, then the payload's slices. A missing CRC stays
// missing.
grpc::ByteBuffer EncodeChunk(const TensorChunk& chunk, ChunkStep step);

// What one message of Attend or PutShard says: the number of the field that is set, and the chunk
// when it is field 2. For another field decode the whole message with DecodeProto.
struct StreamStep {
  int field = 0;
  TensorChunk chunk;
  bool is_chunk() const { return field == static_cast<int>(ChunkStep::kStep); }
};

// Decoding takes fields in any order and ignores unknown ones; the chunk refers to the buffer's
// slices. INVALID_ARGUMENT: MALFORMED_MESSAGE; STREAM_SEQUENCE (no field of the oneof, or more than
// one); LIMIT_EXCEEDED (more than kMaxChunkBytes); UNKNOWN_TENSOR; CHUNK_OUT_OF_RANGE (a negative
// number, no rows).
absl::StatusOr<StreamStep> DecodeStep(const grpc::ByteBuffer& message);
absl::StatusOr<TensorChunk> DecodeChunk(const grpc::ByteBuffer& message);

// Whether the chunk lies inside `tensor` with `rows` rows and has as many bytes as it says. A head
// count of 0 becomes the tensor's. INVALID_ARGUMENT: CHUNK_OUT_OF_RANGE, TENSOR_BYTES_MISMATCH.
absl::Status CheckChunk(const TensorInfo& tensor, int64_t rows, TensorChunk* chunk);

// DATA_LOSS / CHECKSUM_MISMATCH when the chunk names a CRC and its bytes have another one.
absl::Status VerifyCrc(const TensorChunk& chunk);

// Typed messages on raw streams. INVALID_ARGUMENT / MALFORMED_MESSAGE for what does not parse.
grpc::ByteBuffer EncodeProto(const google::protobuf::MessageLite& message);
absl::Status DecodeProto(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);

}  // namespace annulus

#endif  // ANNULUS_PROTO_TENSOR_STREAM_H_
