#ifndef ANNULUS_PROTO_RPC_UNARY_CALL_H_
#define ANNULUS_PROTO_RPC_UNARY_CALL_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/rpc/slow_reader_guard.h"

namespace annulus {

// A unary call of a server, which lets go of a caller who does not read the answer: after
// `patience` and ReadingTime of its bytes the call is cancelled.
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  // `response` is gRPC's own, of a raw method: at the call's end the answer goes there. Both stay
  // until the call is done.
  UnaryCall(grpc::CallbackServerContext* context, const google::protobuf::MessageLite* answer,
            absl::Duration patience, grpc::ByteBuffer* response);

  // Until gRPC is done with it; before the call can end. Somebody else may keep it, too.
  void Keep(std::shared_ptr<UnaryCall> self) { self_ = std::move(self); }

  // What is kept of the request until the call is over counts beside the answer
  // (slow_reader_registry.h). Before End.
  void Holds(size_t request_bytes) { request_bytes_ = request_bytes; }

  // Once, from any thread: with OK the answer goes out. The call may be gone when this returns.
  void End(const absl::Status& status);
  void OnDone() override;

 private:
  const google::protobuf::MessageLite* const answer_;
  const absl::Duration patience_;
  grpc::ByteBuffer* const response_;
  size_t request_bytes_ = 0;
  SlowReaderGuard unread_end_;
  std::shared_ptr<UnaryCall> self_;
};

// One with an answer of its own, to be filled in before End.
template <typename Answer>
class AnswerCall final : public UnaryCall {
 public:
  AnswerCall(grpc::CallbackServerContext* context, absl::Duration patience,
             grpc::ByteBuffer* response)
      : UnaryCall(context, &answer, patience, response) {}

  static AnswerCall* Start(grpc::CallbackServerContext* context, absl::Duration patience,
                           grpc::ByteBuffer* response) {
    auto call = std::make_shared<AnswerCall>(context, patience, response);
    AnswerCall* const reactor = call.get();
    reactor->Keep(std::move(call));
    return reactor;
  }

  Answer answer;
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_UNARY_CALL_H_
