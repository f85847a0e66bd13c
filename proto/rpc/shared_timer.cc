#include "proto/rpc/shared_timer.h"

#include <algorithm>
#include <map>
#include <thread>

#include "base/mutex.h"
#include "base/steady_time.h"

namespace annulus {
namespace {

constexpr absl::Duration kLongestSleep = absl::Hours(1);

// One for the process; never destroyed.
class AlarmClock {
 public:
  using Alarm = std::pair<absl::Time, uint64_t>;

  static AlarmClock& Get() {
    static auto* const clock = new AlarmClock();
    return *clock;
  }

  Alarm Set(absl::Time when, std::function<void()> over) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    const Alarm alarm{when, ++last_};
    alarms_.emplace(alarm, std::move(over));
    if (when < sleeps_until_) changed_.SignalAll();
    return alarm;
  }

  void Unset(const Alarm& alarm) EXCLUDES(mutex_) {
    std::function<void()> gone;  // Destroyed without the lock.
    MutexLock lock(&mutex_);
    const auto it = alarms_.find(alarm);
    if (it == alarms_.end()) return;
    gone = std::move(it->second);
    alarms_.erase(it);
  }

 private:
  AlarmClock() {
    std::thread([this] {
      for (;;) Next()();
    }).detach();
  }

  std::function<void()> Next() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    for (;;) {
      const absl::Time now = SteadyNow();
      absl::Time wake = now + kLongestSleep;
      if (!alarms_.empty()) wake = std::min(wake, alarms_.begin()->first.first);
      if (wake <= now) {
        std::function<void()> over = std::move(alarms_.begin()->second);
        alarms_.erase(alarms_.begin());
        return over;
      }
      sleeps_until_ = wake;
      changed_.WaitFor(&mutex_, wake - now);
      sleeps_until_ = absl::InfinitePast();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::map<Alarm, std::function<void()>> alarms_ GUARDED_BY(mutex_);
  uint64_t last_ GUARDED_BY(mutex_) = 0;
  absl::Time sleeps_until_ GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace

void SharedTimer::Begin() {
  if (alarm_.has_value()) return;
  const absl::Duration longest = absl::Hours(24 * 365);  // The longest wait of the clock.
  alarm_ = AlarmClock::Get().Set(SteadyNow() + std::min(length_, longest), over_);
}

void SharedTimer::CallOff() {
  if (alarm_.has_value()) AlarmClock::Get().Unset(*alarm_);
  alarm_.reset();
}

}  // namespace annulus
