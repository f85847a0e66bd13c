#ifndef ANNULUS_PROTO_UNARY_CALL_H_
#define ANNULUS_PROTO_UNARY_CALL_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/unread_end.h"

namespace annulus {

// A unary call of a server, which lets go of a caller who does not read the answer: after
// `patience` and ReadingTime of its bytes the call is cancelled.
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  // Until the call is done. `raw`: of a raw method, gRPC's own, which the answer goes to at its
  // end; else the answer is.
  UnaryCall(grpc::CallbackServerContext* context, const google::protobuf::MessageLite* answer,
            absl::Duration patience = kUnreadPatience, grpc::ByteBuffer* raw = nullptr);

  // One that keeps itself until gRPC is done with it.
  static UnaryCall* Start(grpc::CallbackServerContext* context,
                          const google::protobuf::MessageLite* answer,
                          absl::Duration patience = kUnreadPatience);
  // The same for one that somebody else may keep, too; before the call can end.
  void Keep(std::shared_ptr<UnaryCall> self) { self_ = std::move(self); }

  // What is kept of the request until the call is over counts beside the answer (unread_answers.h).
  // Before End.
  void Holds(size_t request_bytes) { request_bytes_ = request_bytes; }

  // Once, from any thread: with OK the answer goes out. The call may be gone when this returns.
  void End(const absl::Status& status);
  void OnDone() override;

 private:
  const google::protobuf::MessageLite* const answer_;
  const absl::Duration patience_;
  grpc::ByteBuffer* const raw_;
  size_t request_bytes_ = 0;
  UnreadEnd unread_end_;
  std::shared_ptr<UnaryCall> self_;
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_UNARY_CALL_H_
