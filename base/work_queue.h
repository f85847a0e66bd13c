#ifndef ANNULUS_BASE_WORK_QUEUE_H_
#define ANNULUS_BASE_WORK_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace annulus {

// Threads that do what is posted; one thread does it in order. Thread-safe.
class WorkQueue {
 public:
  // `limit`: pieces of work that may wait.
  explicit WorkQueue(size_t limit, int threads = 1);
  // Does what is queued, then ends.
  ~WorkQueue();

  // False, and nothing happens, where `limit` pieces wait.
  bool Post(std::function<void()> work);
  // As Post, never refused: for work that frees something, and is bounded by what there is to free.
  void PostAlways(std::function<void()> work);
  // Before everything that waits; never refused.
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
