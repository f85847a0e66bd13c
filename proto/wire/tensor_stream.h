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

// Conversion between chunks of tensors and gRPC messages, without a copy of the payload. Only this
// file knows the wire format of a chunk, its largest size, and what its CRC covers. Pure functions;
// nothing blocks.

// The largest number of bytes of a message on a stream of chunks.
inline constexpr int64_t kMaxStreamMessageBytes = int64_t{4} << 20;

// annulus.v1.Chunk: a rectangle of one tensor.
struct TensorChunk : ChunkHeader {
  Payload data;
  int unknown_field = 0;  // The number of a field that this build does not know; 0: none.
};

// The field of the chunks in AttendRequest, AttendResponse, PutShardRequest and FetchShardResponse.
inline constexpr int kChunksField = 2;

// The largest number of bytes that a worker accepts in a message besides chunks: a ticket, and the
// rows to fetch. A caller without a ticket must not keep the worker busy.
inline constexpr int64_t kMaxTicketMessageBytes = 64 << 10;

// Encodes one of these messages. `rest` holds all fields except the chunks; nullptr: there are
// none. Each chunk is a header of a few bytes, then the payload's slices. An absent CRC stays
// absent.
grpc::ByteBuffer EncodeChunks(absl::Span<const TensorChunk> chunks,
                              const google::protobuf::MessageLite* rest = nullptr);

// Decodes one of these messages. The chunks refer to the buffer's slices. All other fields, unknown
// ones too, go to `rest`, at most `max_rest_bytes`. Fields may come in any order. INVALID_ARGUMENT:
// - MALFORMED_MESSAGE, also for a chunk with more than 64 fields;
// - LIMIT_EXCEEDED above kMaxMessageChunks, kMaxChunkBytes or max_rest_bytes;
// - UNKNOWN_TENSOR;
// - CHUNK_OUT_OF_RANGE for a negative number, or no rows.
absl::StatusOr<std::vector<TensorChunk>> DecodeChunks(
    const grpc::ByteBuffer& message, google::protobuf::MessageLite* rest,
    int64_t max_rest_bytes = std::numeric_limits<int64_t>::max());

// For requests, whose unknown fields may be options: INVALID_ARGUMENT / UNKNOWN_FIELD if `rest` or
// a chunk has an unknown field.
absl::Status CheckKnown(const google::protobuf::Message& rest,
                        absl::Span<const TensorChunk> chunks);

// CheckChunkHeader for a chunk with its data: it lies inside `tensor` with `rows` rows and has the
// right number of bytes. Replaces a head count of 0 by the tensor's. INVALID_ARGUMENT /
// CHUNK_OUT_OF_RANGE, TENSOR_BYTES_MISMATCH.
absl::Status CheckChunk(const TensorInfo& tensor, int64_t rows, TensorChunk* chunk);

// DATA_LOSS / CHECKSUM_MISMATCH if the chunk has a CRC and its bytes have another.
absl::Status VerifyCrc(const TensorChunk& chunk);

// Typed messages on raw streams. INVALID_ARGUMENT / MALFORMED_MESSAGE if the bytes do not parse.
grpc::ByteBuffer EncodeProto(const google::protobuf::MessageLite& message);
absl::Status DecodeProto(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);
// Same for a small message, such as a message to a worker without chunks. INVALID_ARGUMENT /
// LIMIT_EXCEEDED above `max_bytes`, before anything is read.
absl::Status DecodeSmallProto(const grpc::ByteBuffer& buffer,
                              google::protobuf::MessageLite* message,
                              int64_t max_bytes = kMaxTicketMessageBytes);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_TENSOR_STREAM_H_
