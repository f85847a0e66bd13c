#include "worker/data_plane/copy_pool.h"

#include <utility>

namespace annulus {

CopyPool::CopyPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

CopyPool::~CopyPool() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
}

void CopyPool::Run(int64_t bytes, std::function<void()> work) {
  if (bytes <= kInlineBytes) return work();
  {
    MutexLock lock(&mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.Signal();
}

void CopyPool::Loop() {
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
