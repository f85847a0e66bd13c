#ifndef ANNULUS_SERVER_GATEWAY_CONCURRENCY_LIMITER_H_
#define ANNULUS_SERVER_GATEWAY_CONCURRENCY_LIMITER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace annulus {

// Limits the number of calls that the gateway serves at once, so that its memory suffices.
// Thread-safe.
class ConcurrencyLimiter {
 public:
  explicit ConcurrencyLimiter(int limit);

  // Returns a place, held until the last copy is destroyed, which may be after this object.
  // RESOURCE_EXHAUSTED / TOO_MANY_CALLS.
  absl::StatusOr<std::shared_ptr<void>> Enter();
  // Frees the place for others before its call is over. WaitUntilEmpty still waits for the call
  // until the last copy of the result is destroyed. Null for no place.
  std::shared_ptr<void> Leave(std::shared_ptr<void> place);
  // Waits until no call is inside or leaving. False at the deadline, by base/steady_time.h.
  bool WaitUntilEmpty(absl::Time deadline);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_CONCURRENCY_LIMITER_H_
