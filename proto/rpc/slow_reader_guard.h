#ifndef ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_
#define ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
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
  // too many calls wait (SlowReaderRegistry); `bytes` is its part of what waits. Only the first
  // Begin has an effect.
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

// The calls with answers that the peer has not read. The handlers of most have ended; gRPC keeps
// the call until the peer reads. A call whose peer reads finishes at once. Above the limits, the
// calls that have waited longest are cancelled. Thread-safe.
class SlowReaderRegistry {
 public:
  struct Limits {
    size_t calls = 8192;  // Each takes about 10 KiB in addition to its answer.
    size_t bytes = size_t{256} << 20;
  };
  explicit SlowReaderRegistry(Limits limits) : limits_(limits) {}

  // The registry of the process.
  static SlowReaderRegistry& Get();

  // Adds a call with an answer of `bytes`. `cancel` is called at most once, by a thread that adds
  // or resizes another call. It may run during Remove or after it, and must not wait for this
  // object. The latest call stays, even if it exceeds the limit alone.
  uint64_t Add(size_t bytes, std::function<void()> cancel) EXCLUDES(mutex_);
  // Changes the number of bytes of a call. Its waiting time continues. No effect on a call that was
  // cancelled.
  void Resize(uint64_t call, size_t bytes) EXCLUDES(mutex_);
  // Removes a call that is over. A call that was cancelled may be removed too.
  void Remove(uint64_t call) EXCLUDES(mutex_);

  size_t calls() const EXCLUDES(mutex_);
  size_t bytes() const EXCLUDES(mutex_);

 private:
  struct Call {
    size_t bytes = 0;
    std::function<void()> cancel;
  };
  // Returns the functions to call, without the lock.
  std::vector<std::function<void()>> MakeRoomLocked() REQUIRES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  std::map<uint64_t, Call> calls_ GUARDED_BY(mutex_);  // In the order in which they began to wait.
  size_t bytes_ GUARDED_BY(mutex_) = 0;
  uint64_t last_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_SLOW_READER_GUARD_H_
