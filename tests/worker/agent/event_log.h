#ifndef ANNULUS_TESTS_WORKER_AGENT_EVENT_LOG_H_
#define ANNULUS_TESTS_WORKER_AGENT_EVENT_LOG_H_

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "annulus/control/v1/control.pb.h"
#include "base/mutex.h"

namespace annulus {

// The reports of a part of a worker, in order. Thread-safe.
class EventLog {
 public:
  using Event = control::v1::WorkerEvent;

  void Add(Event event) {
    MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
    changed_.SignalAll();
  }
  // The first event of this case that Wait has not returned yet. Others stay for later calls.
  // nullopt after a minute.
  std::optional<Event> Wait(Event::EventCase wanted) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    MutexLock lock(&mutex_);
    while (true) {
      for (size_t i = 0; i < events_.size(); ++i) {
        if (given_.count(i) == 0 && events_[i].event_case() == wanted) {
          given_.insert(i);
          return events_[i];
        }
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
  std::set<size_t> given_ GUARDED_BY(mutex_);  // Returned by Wait.
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_AGENT_EVENT_LOG_H_
