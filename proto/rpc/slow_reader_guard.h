#ifndef ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_
#define ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_

#include <cstddef>
#include <memory>

#include "absl/time/time.h"
#include "grpcpp/server_context.h"

namespace annulus {

// How long a call's end waits for a caller who does not read, besides ReadingTime.
inline constexpr absl::Duration kSlowReaderPatience = absl::Seconds(10);

// What a caller may take to read so many bytes: 64 KiB in a second.
absl::Duration ReadingTime(size_t bytes);

// What ends a server's call whose peer does not read: gRPC sends a call's end behind its last
// write, and that one waits for the peer. Thread-safe.
class SlowReaderGuard {
 public:
  // `context` lives until Over().
  explicit SlowReaderGuard(grpc::CallbackServerContext* context);
  ~SlowReaderGuard();

  // The call is cancelled `patience` from now if it is not over by then, or before, where too many
  // wait (slow_reader_registry.h), of which `bytes` are this one's; a second one changes nothing.
  void Begin(absl::Duration patience, size_t bytes = 0);
  // Before that, of a call that goes on: `bytes` wait for its caller, who may take his time while
  // not too many do. 0: none. Not together with Begin.
  void Waits(size_t bytes);
  // Of the reactor's OnDone: the call is not touched any more.
  void Over();

 private:
  struct State;
  void Count(size_t bytes);
  const std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_
