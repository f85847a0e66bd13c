#include "base/work_queue.h"

#include <utility>

namespace annulus {

WorkQueue::WorkQueue(size_t limit, int threads) : limit_(limit) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

WorkQueue::~WorkQueue() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkQueue::Post(std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    if (queue_.size() >= limit_) return false;
    queue_.push_back(std::move(work));
  }
  changed_.Signal();
  return true;
}

void WorkQueue::PostAlways(std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.Signal();
}

void WorkQueue::PostFront(std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    queue_.push_front(std::move(work));
  }
  changed_.Signal();
}

void WorkQueue::Loop() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace annulus
