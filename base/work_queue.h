#ifndef ANNULUS_BASE_WORK_QUEUE_H_
#define ANNULUS_BASE_WORK_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace annulus {

// A queue of work with threads that run it. With one thread, work runs in order. Thread-safe.
class WorkQueue {
 public:
  // `limit`: the number of pieces of work that may wait.
  explicit WorkQueue(size_t limit, int threads = 1);
  // Runs all queued work, then ends.
  ~WorkQueue();

  // Adds work at the end. Returns false, and does nothing, if `limit` pieces wait.
  bool Post(std::function<void()> work);
  // Post without a limit. For work that frees resources, which is bounded by what there is to free.
  void PostAlways(std::function<void()> work);
  // Adds work before all waiting work, without a limit.
  void PostFront(std::function<void()> work);

 private:
  void Loop();

  const size_t limit_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_BASE_WORK_QUEUE_H_
