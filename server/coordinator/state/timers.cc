#include "server/coordinator/state/timers.h"

namespace annulus {

void Timers::Set(TimerKey key, absl::Time when) {
  auto it = times_.find(key);
  if (it != times_.end()) {
    order_.erase({it->second, key});
    times_.erase(it);
  }
  if (when == absl::InfiniteFuture()) return;
  times_.emplace(key, when);
  order_.insert({when, key});
}

std::optional<TimerKey> Timers::PopDue(absl::Time now) {
  if (order_.empty() || order_.begin()->first > now) return std::nullopt;
  const TimerKey key = order_.begin()->second;
  Cancel(key);
  return key;
}

absl::Time Timers::Next() const {
  return order_.empty() ? absl::InfiniteFuture() : order_.begin()->first;
}

}  // namespace annulus
