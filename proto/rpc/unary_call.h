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

// A unary call of a server. It is cancelled if its caller does not read the answer within
// `patience` and the ReadingTime of its bytes.
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  // `answer` and `response` stay valid until the call is done. `response` is gRPC's buffer of a raw
  // method: at the end of the call, the answer is written to it.
  UnaryCall(grpc::CallbackServerContext* context, const google::protobuf::MessageLite* answer,
            absl::Duration patience, grpc::ByteBuffer* response);

  // Keeps the call alive until gRPC is done with it. Call it before the call can end. Other owners
  // may keep it too.
  void Keep(std::shared_ptr<UnaryCall> self) { self_ = std::move(self); }

  // The number of bytes of the request that stay until the call is over. They count with the answer
  // (slow_reader_guard.h). Call it before End.
  void Holds(size_t request_bytes) { request_bytes_ = request_bytes; }

  // Ends the call. Called once, from any thread. With OK, the answer is sent. The call may be
  // destroyed when this returns.
  void End(const absl::Status& status);
  void OnDone() override;

 private:
  const google::protobuf::MessageLite* const answer_;
  const absl::Duration patience_;
  grpc::ByteBuffer* const response_;
  size_t request_bytes_ = 0;
  SlowReaderGuard slow_reader_guard_;
  std::shared_ptr<UnaryCall> self_;
};

// A unary call with an answer of its own. Fill in `answer` before End.
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
