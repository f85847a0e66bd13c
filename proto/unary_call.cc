#include "proto/unary_call.h"

#include <utility>

#include "proto/status.h"
#include "proto/tensor_stream.h"

namespace annulus {

UnaryCall::UnaryCall(grpc::CallbackServerContext* context,
                     const google::protobuf::MessageLite* answer, absl::Duration patience,
                     grpc::ByteBuffer* raw)
    : answer_(answer), patience_(patience), raw_(raw), unread_end_(context) {}

UnaryCall* UnaryCall::Start(grpc::CallbackServerContext* context,
                            const google::protobuf::MessageLite* answer, absl::Duration patience) {
  auto call = std::make_shared<UnaryCall>(context, answer, patience);
  UnaryCall* const reactor = call.get();
  reactor->Keep(std::move(call));
  return reactor;
}

void UnaryCall::End(const absl::Status& status) {
  // An error has no message, so nothing of it waits for its caller.
  if (status.ok()) {
    if (raw_ != nullptr) *raw_ = EncodeProto(*answer_);
    const size_t bytes = answer_->ByteSizeLong();
    unread_end_.Begin(patience_ + ReadingTime(bytes), bytes + request_bytes_);
  }
  Finish(ToGrpcStatus(status));
}

void UnaryCall::OnDone() {
  unread_end_.Over();
  // May be the last reference: nothing of this is touched after it.
  const std::shared_ptr<UnaryCall> self = std::move(self_);
}

}  // namespace annulus
