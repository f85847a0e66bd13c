#ifndef ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_
#define ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_

#include <cstddef>
#include <memory>

#include "absl/time/time.h"
#include "grpcpp/server_context.h"

namespace annulus {

// How long the end of a call waits for a caller that does not read, in addition to ReadingTime.
inline constexpr absl::Duration kSlowReaderPatience = absl::Seconds(10);

// The time that a caller may take to read `bytes`: one second per 64 KiB.
absl::Duration ReadingTime(size_t bytes);

// Cancels a server's call whose peer does not read. gRPC sends the end of a call after its last
// write, which waits for the peer. Thread-safe.
class SlowReaderGuard {
 public:
  // `context` stays valid until Over().
  explicit SlowReaderGuard(grpc::CallbackServerContext* context);
  ~SlowReaderGuard();

  // Cancels the call after `patience` if it is not over by then. The call is cancelled earlier if
  // too many calls wait (proto/rpc/slow_reader_registry.h); `bytes` is its part of what waits. Only
  // the first Begin has an effect.
  void Begin(absl::Duration patience, size_t bytes = 0);
  // For a call that continues, before Begin: `bytes` wait for its caller. The call is cancelled
  // only if too many calls wait. 0: nothing waits. Not concurrently with Begin.
  void Waits(size_t bytes);
  // Called from the reactor's OnDone. The call is not accessed any more.
  void Over();

 private:
  struct State;
  void Count(size_t bytes);
  const std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_
