#ifndef ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_
#define ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "base/work_queue.h"

namespace annulus {

// Threads for work that is too long for a gRPC callback: copying chunks and computing their
// checksums. Each call has at most one item here, so the queue is at most as long as the number of
// calls. Thread-safe.
class CopyPool {
 public:
  // The most bytes to process in a callback if they are in no CPU cache.
  static constexpr int64_t kInlineBytes = 512 << 10;
  // The most bytes to process in a callback if they have just been received. They are in the caches
  // of the CPU that read them, and another CPU takes longer to fetch them than to copy them.
  static constexpr int64_t kInlineArrivedBytes = 1 << 20;

  explicit CopyPool(int threads) : queue_(/*limit=*/0, threads) {}

  // Runs `work` on `bytes` that this thread has just received: on this thread if they are few,
  // otherwise in the pool.
  void Run(int64_t bytes, std::function<void()> work) {
    bytes <= kInlineArrivedBytes ? work() : Queue(std::move(work));
  }
  // Runs `work` in the pool.
  void Queue(std::function<void()> work) { queue_.PostAlways(std::move(work)); }

 private:
  WorkQueue queue_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_
