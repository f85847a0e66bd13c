#ifndef ANNULUS_PROTO_RPC_SLOW_READER_REGISTRY_H_
#define ANNULUS_PROTO_RPC_SLOW_READER_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/mutex.h"

namespace annulus {

// Calls whose callers have not read all that waits for them; most of these calls have ended. Calls
// whose peer reads finish at once. Above the limit, the calls that have waited longest are
// cancelled. Thread-safe.
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

#endif  // ANNULUS_PROTO_RPC_SLOW_READER_REGISTRY_H_
