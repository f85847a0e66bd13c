#ifndef ANNULUS_PROTO_RPC_REQUEST_FIELDS_H_
#define ANNULUS_PROTO_RPC_REQUEST_FIELDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace annulus {

// Requests of unauthenticated callers, as they come from the wire. An empty message inside a
// request takes two bytes on the wire, a hundred bytes in memory, and time. So parts are counted
// before any message is created.

// The largest number of parts in one request. A part is a message, a text, or a field that this
// build does not know or knows as another type. A spec has a message for each sequence, mask and
// range.
inline constexpr int64_t kMaxRequestParts = int64_t{1} << 19;

// Counts the parts of a message of `type`. It reads the whole message, as far as it parses, in at
// most 50 ns per part, and allocates nothing. Errors:
// - INVALID_ARGUMENT / MALFORMED_MESSAGE if the message has a group, which no message of ours has;
// - INVALID_ARGUMENT / LIMIT_EXCEEDED above kMaxRequestParts.
absl::Status CheckRequestParts(const grpc::ByteBuffer& message,
                               const google::protobuf::Descriptor* type);

// Calls CheckRequestParts, then parses the message. Also INVALID_ARGUMENT / MALFORMED_MESSAGE.
absl::Status ParseRequest(const grpc::ByteBuffer& message, google::protobuf::Message* request);

// Parses the message of a raw method with one request and frees it. gRPC would keep it until the
// call ends. Errors: those of ParseRequest.
absl::Status TakeRequest(const grpc::ByteBuffer* arrived, google::protobuf::Message* request);
// Same for a small request (message_limits.h). Errors: INVALID_ARGUMENT / LIMIT_EXCEEDED above
// kMaxQuestionBytes, before parsing; MALFORMED_MESSAGE; UNKNOWN_FIELD.
absl::Status TakeQuestion(const grpc::ByteBuffer* arrived, google::protobuf::Message* question);

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_REQUEST_FIELDS_H_
