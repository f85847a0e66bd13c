#include "base/serial_executor.h"

#include <algorithm>
#include <utility>

namespace annulus {

void SerialExecutor::Start() {
  thread_ = std::thread([this] { KeepTime(); });
  Work();
  options_.after();
}

void SerialExecutor::Take() {
  {
    MutexLock lock(&mutex_);
    ++asked_;
    if (stopping_ || std::exchange(busy_, true)) return;
  }
  Work();
  options_.after();
}

void SerialExecutor::Ask() {
  MutexLock lock(&mutex_);
  ++asked_;
  if (stopping_ || busy_) return;
  aside_ = true;
  if (sleeps_until_ > options_.now() + kNap) changed_.SignalAll();
}

void SerialExecutor::Work() {
  uint64_t asked = 0;
  int done = 0;
  do {
    {
      MutexLock lock(&mutex_);
      asked = asked_;
    }
    while (options_.work()) {
      if (++done < options_.most_in_a_row) continue;
      MutexLock lock(&mutex_);
      handed_over_ = true;
      changed_.SignalAll();
      return;
    }
  } while (!EndTurn(asked));
}

bool SerialExecutor::EndTurn(uint64_t asked) {
  const absl::Time wake = options_.wake();
  MutexLock lock(&mutex_);
  if (asked != asked_ && !stopping_) return false;
  busy_ = aside_ = false;
  active_ = true;
  wake_ = wake;
  if (stopping_ || wake_ + kNap < sleeps_until_) changed_.SignalAll();
  return true;
}

bool SerialExecutor::AwaitTurn(absl::Time longest) {
  MutexLock lock(&mutex_);
  for (;;) {
    if (std::exchange(handed_over_, false)) return true;
    if (!busy_ && aside_) return busy_ = true;
    if (stopping_ && !busy_) return false;
    const absl::Time now = options_.now();
    const absl::Time wake = std::min(wake_, longest);
    if (!busy_ && now >= wake) {
      busy_ = true;
      return true;
    }
    absl::Duration sleep = busy_ ? options_.longest_sleep : wake - now;
    if (std::exchange(active_, false)) sleep = std::min(sleep, kNap);
    sleeps_until_ = now + sleep;
    changed_.WaitFor(&mutex_, sleep);
    sleeps_until_ = absl::InfinitePast();
  }
}

void SerialExecutor::KeepTime() {
  absl::Time longest = options_.now() + options_.longest_sleep;
  while (AwaitTurn(longest)) {
    for (int done = 0; done < options_.most_in_a_row && options_.work(); ++done) {
    }
    if (const absl::Time now = options_.now(); now >= std::min(options_.wake(), longest)) {
      options_.tick();
      longest = now + options_.longest_sleep;
    }
    Work();
    options_.after();
  }
}

void SerialExecutor::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace annulus
