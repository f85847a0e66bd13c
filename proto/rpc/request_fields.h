#ifndef ANNULUS_PROTO_RPC_REQUEST_FIELDS_H_
#define ANNULUS_PROTO_RPC_REQUEST_FIELDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace annulus {

// Requests of callers that nobody knows yet, as they come from the wire. An empty message inside of
// one takes two bytes there and a hundred here, and time: so they are counted before any is made.

// Messages, texts and fields that this build does not know, or knows as another type, in one
// request. A spec has a message for each sequence, mask and range.
inline constexpr int64_t kMaxRequestParts = int64_t{1} << 19;

// INVALID_ARGUMENT / LIMIT_EXCEEDED where a message of `type` has more parts, MALFORMED_MESSAGE
// where it has a group, which ours do not. Reads all of it, as far as it parses, in 50 ns or less a
// part, and makes nothing.
absl::Status CheckRequestParts(const grpc::ByteBuffer& message,
                               const google::protobuf::Descriptor* type);

// That, and then the message. Also INVALID_ARGUMENT / MALFORMED_MESSAGE.
absl::Status ParseRequest(const grpc::ByteBuffer& message, google::protobuf::Message* request);

// The message of a raw method with one request, which gRPC keeps until the call is over: it is let
// go of here.
absl::Status TakeRequest(const grpc::ByteBuffer* arrived, google::protobuf::Message* request);
// The same of a small one (message_limits.h): also INVALID_ARGUMENT / LIMIT_EXCEEDED past
// kMaxQuestionBytes, before it is parsed, and UNKNOWN_FIELD.
absl::Status TakeQuestion(const grpc::ByteBuffer* arrived, google::protobuf::Message* question);

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_REQUEST_FIELDS_H_
