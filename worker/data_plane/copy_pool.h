#ifndef ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_
#define ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "base/work_queue.h"

namespace annulus {

// Threads for what is too long for a gRPC callback: copies and checksums of chunks. Each call has
// at most one piece of work here, so the queue is as long as there are calls. Thread-safe.
class CopyPool {
 public:
  // More bytes than this, which are in no cache, do not belong in a callback.
  static constexpr int64_t kInlineBytes = 512 << 10;
  // Nor more than this of what has just arrived: it is in the caches of the CPU that read it, and
  // another one takes longer to fetch it than to copy it.
  static constexpr int64_t kInlineArrivedBytes = 1 << 20;

  explicit CopyPool(int threads) : queue_(/*limit=*/0, threads) {}

  // Runs `work` on `bytes` that this thread has just received: at once when they are few, else in
  // the pool.
  void Run(int64_t bytes, std::function<void()> work) {
    bytes <= kInlineArrivedBytes ? work() : Queue(std::move(work));
  }
  // In the pool.
  void Queue(std::function<void()> work) { queue_.PostAlways(std::move(work)); }

 private:
  WorkQueue queue_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_
