#include "base/turns.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace annulus {

void Turns::Start() {
  thread_ = std::thread([this] { KeepTime(); });
  Work(options_.most_in_a_row);
}

void Turns::Take() {
  {
    MutexLock lock(&mutex_);
    ++asked_;
    if (stopping_ || std::exchange(busy_, true)) return;
  }
  Work(options_.most_in_a_row);
}

void Turns::Work(int most) {
  uint64_t asked = 0;
  int done = 0;
  do {
    {
      MutexLock lock(&mutex_);
      asked = asked_;
    }
    while (options_.work()) {
      if (++done < most) continue;
      MutexLock lock(&mutex_);
      handed_over_ = true;
      changed_.SignalAll();
      return;
    }
  } while (!EndTurn(asked));
}

bool Turns::EndTurn(uint64_t asked) {
  const absl::Time wake = options_.wake();
  MutexLock lock(&mutex_);
  if (asked != asked_ && !stopping_) return false;
  busy_ = false;
  active_ = true;
  wake_ = wake;
  if (stopping_ || wake_ + kNap < sleeps_until_) changed_.SignalAll();
  return true;
}

bool Turns::AwaitTurn(bool* due) {
  MutexLock lock(&mutex_);
  const absl::Time longest = options_.now() + options_.longest_sleep;
  for (;;) {
    *due = false;
    if (std::exchange(handed_over_, false)) return true;
    if (stopping_ && !busy_) return false;
    const absl::Time now = options_.now();
    const absl::Time wake = std::min(wake_, longest);
    if (!busy_ && now >= wake) {
      *due = busy_ = true;
      return true;
    }
    absl::Duration sleep = busy_ ? options_.longest_sleep : wake - now;
    if (std::exchange(active_, false)) sleep = std::min(sleep, kNap);
    sleeps_until_ = now + sleep;
    changed_.WaitFor(&mutex_, sleep);
    sleeps_until_ = absl::InfinitePast();
  }
}

void Turns::KeepTime() {
  bool due = false;
  while (AwaitTurn(&due)) {
    if (due) options_.tick();
    Work(std::numeric_limits<int>::max());
  }
}

void Turns::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace annulus
