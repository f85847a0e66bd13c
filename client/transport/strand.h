#ifndef ANNULUS_CLIENT_TRANSPORT_STRAND_H_
#define ANNULUS_CLIENT_TRANSPORT_STRAND_H_

#include <deque>
#include <functional>

#include "base/mutex.h"

namespace annulus {

// Runs functions one at a time, in the order in which they were posted, on whichever thread posted
// while none was running. What they touch needs no lock of its own. A function may post; it does
// not run inside. The strand must outlive the last Post() call: let functions hold what owns it.
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
