#include "client/transport/strand.h"

#include <utility>

namespace annulus {

void Strand::Post(std::function<void()> function) {
  {
    MutexLock lock(&mutex_);
    waiting_.push_back(std::move(function));
    if (running_) return;
    running_ = true;
  }
  std::function<void()> last;  // Kept until the lock is free: its end may be the strand's.
  for (;;) {
    std::function<void()> next;
    {
      MutexLock lock(&mutex_);
      if (waiting_.empty()) {
        running_ = false;
        break;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
    last = std::move(next);
  }
}

}  // namespace annulus
