#ifndef ANNULUS_PROTO_RPC_SLOW_READER_REGISTRY_H_
#define ANNULUS_PROTO_RPC_SLOW_READER_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/mutex.h"

namespace annulus {

// Calls whose callers have not read all that is there for them: most of them have ended. A caller
// who reads is done with in no time, so where there are too many those that have waited longest are
// cancelled. Thread-safe.
class SlowReaderRegistry {
 public:
  struct Limits {
    size_t calls = 8192;  // Each takes some 10 KiB besides its answer.
    size_t bytes = size_t{256} << 20;
  };
  explicit SlowReaderRegistry(Limits limits) : limits_(limits) {}

  // Those of the process.
  static SlowReaderRegistry& Get();

  // A call whose answer has so many bytes. `cancel` is called at most once, by whoever adds or
  // resizes another, perhaps while Remove runs or after it; it must not wait for this object. The
  // last one stays, however large.
  uint64_t Add(size_t bytes, std::function<void()> cancel) EXCLUDES(mutex_);
  // It has so many now, and has waited for as long as before. One that was cancelled stays gone.
  void Resize(uint64_t call, size_t bytes) EXCLUDES(mutex_);
  // It is over. One that was cancelled may be removed, too.
  void Remove(uint64_t call) EXCLUDES(mutex_);

  size_t calls() const EXCLUDES(mutex_);
  size_t bytes() const EXCLUDES(mutex_);

 private:
  struct Call {
    size_t bytes = 0;
    std::function<void()> cancel;
  };
  // What is to be called, without the lock.
  std::vector<std::function<void()>> MakeRoomLocked() REQUIRES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  std::map<uint64_t, Call> calls_ GUARDED_BY(mutex_);  // In the order of their ends.
  size_t bytes_ GUARDED_BY(mutex_) = 0;
  uint64_t last_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_SLOW_READER_REGISTRY_H_
