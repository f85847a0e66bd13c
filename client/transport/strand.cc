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
  // Destroyed without the lock: it may hold the last reference to the strand's owner.
  std::function<void()> last;
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
