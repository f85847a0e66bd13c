#ifndef ANNULUS_SERVER_GATEWAY_CONCURRENCY_LIMITER_H_
#define ANNULUS_SERVER_GATEWAY_CONCURRENCY_LIMITER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace annulus {

// Counts the calls that the gateway serves, and lets no more in than it has memory for.
// Thread-safe.
class ConcurrencyLimiter {
 public:
  explicit ConcurrencyLimiter(int limit);

  // A place until the last copy goes, which may be after the gate. RESOURCE_EXHAUSTED /
  // TOO_MANY_CALLS.
  absl::StatusOr<std::shared_ptr<void>> Enter();
  // Gives the place to others, before its call is over. Until the last copy of what comes back goes
  // the call is still waited for; null for no place.
  std::shared_ptr<void> Leave(std::shared_ptr<void> place);
  // False when somebody is still inside, or waited for, at the deadline, by base/steady_time.h.
  bool WaitUntilEmpty(absl::Time deadline);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_CONCURRENCY_LIMITER_H_
