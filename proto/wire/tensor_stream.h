#ifndef ANNULUS_PROTO_WIRE_TENSOR_STREAM_H_
#define ANNULUS_PROTO_WIRE_TENSOR_STREAM_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/spec/tensor_table.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/wire/chunk_header.h"
#include "proto/wire/payload.h"

namespace annulus {

// Chunks of tensors ⇄ gRPC messages without a copy of the payload. The only place that knows how a
// chunk looks on the wire, how large it may be, and what its CRC covers. Pure functions; nothing
// here waits.

// Most bytes of any message on a stream of chunks.
inline constexpr int64_t kMaxStreamMessageBytes = int64_t{4} << 20;

// annulus.v1.Chunk: a rectangle of one tensor.
struct TensorChunk : ChunkHeader {
  Payload data;
  int unknown_field = 0;  // One that this build does not know; 0: it knows all that are there.
};

// The field of the chunks in AttendRequest, AttendResponse, PutShardRequest and FetchShardResponse.
inline constexpr int kChunksField = 2;

// Most bytes of what a worker is sent beside chunks: a ticket, and the rows to fetch. Who has shown
// no ticket yet must not keep anybody busy.
inline constexpr int64_t kMaxTicketMessageBytes = 64 << 10;

// One of these messages: `rest` is all but the chunks, or nothing. For each chunk a header of a few
// bytes, then the payload's slices. A missing CRC stays missing.
grpc::ByteBuffer EncodeChunks(absl::Span<const TensorChunk> chunks,
                              const google::protobuf::MessageLite* rest = nullptr);

// The chunks of one of these messages, which refer to the buffer's slices; the other fields go to
// `rest`, unknown ones too, at most `max_rest_bytes`. Fields may come in any order.
// INVALID_ARGUMENT: MALFORMED_MESSAGE (also a chunk with more than 64 fields); LIMIT_EXCEEDED (more
// than kMaxMessageChunks, kMaxChunkBytes or max_rest_bytes); UNKNOWN_TENSOR; CHUNK_OUT_OF_RANGE (a
// negative number, no rows).
absl::StatusOr<std::vector<TensorChunk>> DecodeChunks(
    const grpc::ByteBuffer& message, google::protobuf::MessageLite* rest,
    int64_t max_rest_bytes = std::numeric_limits<int64_t>::max());

// For requests, whose unknown fields may be options: INVALID_ARGUMENT / UNKNOWN_FIELD where `rest`
// or a chunk has one.
absl::Status CheckKnown(const google::protobuf::Message& rest,
                        absl::Span<const TensorChunk> chunks);

// Whether the chunk lies inside `tensor` with `rows` rows and has as many bytes as it says. A head
// count of 0 becomes the tensor's. INVALID_ARGUMENT: CHUNK_OUT_OF_RANGE, TENSOR_BYTES_MISMATCH.
absl::Status CheckChunk(const TensorInfo& tensor, int64_t rows, TensorChunk* chunk);

// DATA_LOSS / CHECKSUM_MISMATCH when the chunk names a CRC and its bytes have another one.
absl::Status VerifyCrc(const TensorChunk& chunk);

// Typed messages on raw streams. INVALID_ARGUMENT / MALFORMED_MESSAGE for what does not parse.
grpc::ByteBuffer EncodeProto(const google::protobuf::MessageLite& message);
absl::Status DecodeProto(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);
// The same of a small message, as those to a worker without chunks are: LIMIT_EXCEEDED past
// `max_bytes`, before anything is read.
absl::Status DecodeSmallProto(const grpc::ByteBuffer& buffer,
                              google::protobuf::MessageLite* message,
                              int64_t max_bytes = kMaxTicketMessageBytes);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_TENSOR_STREAM_H_
