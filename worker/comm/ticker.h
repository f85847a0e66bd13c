#ifndef ANNULUS_WORKER_COMM_TICKER_H_
#define ANNULUS_WORKER_COMM_TICKER_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace annulus {

// Calls `tick` on its own thread every `period` while armed. The tick interrupts a wait inside a
// library, which thus ends in slices. The thread sleeps while not armed.
class Ticker {
 public:
  Ticker(absl::Duration period, std::function<void()> tick);
  ~Ticker();

  // An additional tick comes at `deadline`, or at once if it has passed.
  void Arm(absl::Time deadline) EXCLUDES(mutex_);
  // A tick in progress may still run when this returns.
  void Disarm() EXCLUDES(mutex_);

 private:
  void Run() EXCLUDES(mutex_);

  const absl::Duration period_;
  const std::function<void()> tick_;
  Mutex mutex_;
  CondVar changed_;
  bool armed_ GUARDED_BY(mutex_) = false;
  bool idle_ GUARDED_BY(mutex_) = false;
  bool stop_ GUARDED_BY(mutex_) = false;
  bool before_deadline_ GUARDED_BY(mutex_) = false;  // True until the tick at deadline_ has run.
  absl::Time deadline_ GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_TICKER_H_
