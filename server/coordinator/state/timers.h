#ifndef ANNULUS_SERVER_COORDINATOR_STATE_TIMERS_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_TIMERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/time/time.h"

namespace annulus {

// The owner of a timer. When it is due, its owner checks what is due: a timer that comes too early
// does no harm.
struct TimerKey {
  enum class Kind : uint8_t {
    kWorker,
    kGroup,
    kFormation,
    kJob,
    kRun,
    kRetention,
    kReadiness,
    kDrain,
    kKept
  };
  Kind kind = Kind::kWorker;
  int64_t number = 0;
  friend bool operator<(const TimerKey& a, const TimerKey& b) {
    return std::make_pair(a.kind, a.number) < std::make_pair(b.kind, b.number);
  }
};

// At most one time for each key. Equal times are due in the order of their keys.
class Timers {
 public:
  // Replaces the key's time; absl::InfiniteFuture() removes it.
  void Set(TimerKey key, absl::Time when);
  void Cancel(TimerKey key) { Set(key, absl::InfiniteFuture()); }
  // Removes and returns the earliest key that is due.
  std::optional<TimerKey> PopDue(absl::Time now);
  // InfiniteFuture if there is none.
  absl::Time Next() const;

 private:
  std::map<TimerKey, absl::Time> times_;
  std::set<std::pair<absl::Time, TimerKey>> order_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_TIMERS_H_
