#ifndef ANNULUS_PROTO_UNREAD_END_H_
#define ANNULUS_PROTO_UNREAD_END_H_

#include <memory>

#include "absl/time/time.h"
#include "grpcpp/server_context.h"

namespace annulus {

// What ends a server's call whose peer does not read: gRPC sends a call's end behind its last
// write, and that one waits for the peer. Thread-safe.
class UnreadEnd {
 public:
  // `context` lives until Over().
  explicit UnreadEnd(grpc::CallbackServerContext* context);
  ~UnreadEnd();

  // The call is cancelled `patience` from now if it is not over by then; a second one changes
  // nothing.
  void Begin(absl::Duration patience);
  // Of the reactor's OnDone: the call is not touched any more.
  void Over();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_UNREAD_END_H_
