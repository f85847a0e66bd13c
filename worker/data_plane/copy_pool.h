#ifndef ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_
#define ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "worker/work_queue.h"

namespace annulus {

// Threads for what is too long for a gRPC callback: copies and checksums of chunks. Each call has
// at most one piece of work here, so the queue is as long as there are calls. Thread-safe.
class CopyPool {
 public:
  // More bytes than this do not belong in a callback.
  static constexpr int64_t kInlineBytes = 512 << 10;

  explicit CopyPool(int threads) : queue_(/*limit=*/0, threads) {}

  // Runs `work` on `bytes` of data: at once in this thread when they are few, else in the pool.
  void Run(int64_t bytes, std::function<void()> work) {
    bytes <= kInlineBytes ? work() : Queue(std::move(work));
  }
  // In the pool.
  void Queue(std::function<void()> work) { queue_.PostAlways(std::move(work)); }

 private:
  WorkQueue queue_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_
