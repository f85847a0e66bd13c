#ifndef ANNULUS_TESTS_WORKER_EVENT_LOG_H_
#define ANNULUS_TESTS_WORKER_EVENT_LOG_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "annulus/control/v1/control.pb.h"
#include "base/mutex.h"

namespace annulus {

// What a part of a worker has reported, in order. Thread-safe.
class EventLog {
 public:
  using Event = control::v1::WorkerEvent;

  void Add(Event event) {
    MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
    changed_.SignalAll();
  }
  // The next event of this case that Wait has not given yet; others are passed over. Nothing after
  // 20 s.
  std::optional<Event> Wait(Event::EventCase wanted) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mutex_);
    while (true) {
      for (; next_ < events_.size(); ++next_) {
        if (events_[next_].event_case() == wanted) return events_[next_++];
      }
      if (!changed_.WaitUntil(&mutex_, deadline)) return std::nullopt;
    }
  }
  int Count(Event::EventCase wanted) const {
    MutexLock lock(&mutex_);
    int count = 0;
    for (const Event& event : events_) count += event.event_case() == wanted;
    return count;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Event> events_ GUARDED_BY(mutex_);
  size_t next_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EVENT_LOG_H_
