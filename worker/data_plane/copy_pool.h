#ifndef ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_
#define ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace annulus {

// Threads for what is too long for a gRPC callback: copies and checksums of chunks. Each call has
// at most one piece of work here, so the queue is as long as there are calls. Thread-safe.
class CopyPool {
 public:
  // More bytes than this do not belong in a callback.
  static constexpr int64_t kInlineBytes = 256 << 10;

  explicit CopyPool(int threads);
  // Runs what is queued, then ends.
  ~CopyPool();

  // Runs `work` on `bytes` of data: at once in this thread when they are few, else in the pool.
  void Run(int64_t bytes, std::function<void()> work);

 private:
  void Loop();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_COPY_POOL_H_
