#ifndef ANNULUS_TESTS_BASE_GATE_H_
#define ANNULUS_TESTS_BASE_GATE_H_

#include "absl/time/clock.h"
#include "base/mutex.h"

namespace annulus {

// Blocks callers of Pass until it is opened. Thread-safe.
class Gate {
 public:
  void Pass() {
    MutexLock lock(&mutex_);
    reached_ = true;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mutex_);
  }
  // True if a caller has reached the gate, within a minute.
  bool AwaitOne() {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    MutexLock lock(&mutex_);
    while (!reached_) {
      if (!changed_.WaitUntil(&mutex_, deadline)) return reached_;
    }
    return true;
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.SignalAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool reached_ GUARDED_BY(mutex_) = false;
  bool open_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_BASE_GATE_H_
