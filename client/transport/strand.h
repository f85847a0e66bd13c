#ifndef ANNULUS_CLIENT_TRANSPORT_STRAND_H_
#define ANNULUS_CLIENT_TRANSPORT_STRAND_H_

#include <deque>
#include <functional>

#include "base/mutex.h"

namespace annulus {

// Runs posted functions one at a time, in the order of Post(). The thread that posts to an idle
// strand runs its function, and all that others post meanwhile, before Post() returns. State that
// only these functions use needs no lock. A function may post; the new function runs after it
// returns. The strand must outlive the last Post() call: let the functions hold a shared_ptr to its
// owner.
//
// SerialExecutor (base/serial_executor.h) serialises in the same way, but is for long-lived loops:
// it has one function for all events, a thread with a timer for ticks, a limit on the events that
// one thread handles in a row, and Stop(). A Strand has none of these and costs only a mutex and a
// queue: each session has its own.
class Strand {
 public:
  void Post(std::function<void()> function) EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::deque<std::function<void()>> waiting_ GUARDED_BY(mutex_);
  bool running_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_STRAND_H_
