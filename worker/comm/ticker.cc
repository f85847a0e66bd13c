#include "worker/comm/ticker.h"

#include <algorithm>
#include <utility>

#include "base/steady_time.h"

namespace annulus {

Ticker::Ticker(absl::Duration period, std::function<void()> tick)
    : period_(period), tick_(std::move(tick)), thread_([this] { Run(); }) {}

Ticker::~Ticker() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void Ticker::Arm(absl::Time deadline) {
  MutexLock lock(&mutex_);
  armed_ = true;
  deadline_ = deadline;
  before_deadline_ = true;
  // A thread that is already waiting for its period needs no signal, unless the deadline is
  // earlier.
  if (idle_ || deadline < SteadyNow() + period_) changed_.Signal();
}

void Ticker::Disarm() {
  MutexLock lock(&mutex_);
  armed_ = false;
}

void Ticker::Run() {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      if (!armed_) {
        idle_ = true;
        changed_.Wait(&mutex_);
        idle_ = false;
        continue;
      }
      // Ticks continue after the deadline, because no wait may have been active at the tick of the
      // deadline.
      const absl::Time now = SteadyNow();
      const absl::Time due = before_deadline_ ? std::min(now + period_, deadline_) : now + period_;
      if (due > now && changed_.WaitFor(&mutex_, due - now)) continue;
      if (stop_) return;
      if (!armed_) continue;
      if (SteadyNow() >= deadline_) before_deadline_ = false;
    }
    tick_();
  }
}

}  // namespace annulus
