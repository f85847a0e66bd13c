#include "proto/rpc/unary_call.h"

#include <utility>

#include "proto/wire/status.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {

UnaryCall::UnaryCall(grpc::CallbackServerContext* context,
                     const google::protobuf::MessageLite* answer, absl::Duration patience,
                     grpc::ByteBuffer* response)
    : answer_(answer), patience_(patience), response_(response), slow_reader_guard_(context) {}

void UnaryCall::End(const absl::Status& status) {
  // An error has no message, so nothing of it waits for the caller.
  if (status.ok()) {
    *response_ = EncodeProto(*answer_);
    const size_t bytes = response_->Length();
    // The answer exists twice: as a message and as the bytes that are sent.
    slow_reader_guard_.Begin(patience_ + ReadingTime(bytes), 2 * bytes + request_bytes_);
  }
  Finish(ToGrpcStatus(status));
}

void UnaryCall::OnDone() {
  slow_reader_guard_.Over();
  // This may be the last reference: no member is accessed after it.
  const std::shared_ptr<UnaryCall> self = std::move(self_);
}

}  // namespace annulus
