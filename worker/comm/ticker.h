#ifndef ANNULUS_WORKER_COMM_TICKER_H_
#define ANNULUS_WORKER_COMM_TICKER_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace annulus {

// Calls `tick` from a thread of its own every `period` while it is armed, so that a wait inside a
// library, which it interrupts, ends in slices. Sleeps without waking while it is not armed.
class Ticker {
 public:
  Ticker(absl::Duration period, std::function<void()> tick);
  ~Ticker();

  // One more tick comes at `deadline`, when that is sooner than the next period; at once when it
  // has passed.
  void Arm(absl::Time deadline) EXCLUDES(mutex_);
  // A tick under way may still run when this returns.
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
  bool before_deadline_ GUARDED_BY(mutex_) = false;  // Its tick has not come.
  absl::Time deadline_ GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_TICKER_H_
