#ifndef ANNULUS_CLIENT_SESSION_RETRY_H_
#define ANNULUS_CLIENT_SESSION_RETRY_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace annulus {

// Whether, and when, a job is sent again after an error. Pure but for its counter and its
// randomness.
class RetryPolicy {
 public:
  // `random` gives numbers in [0, 1).
  RetryPolicy(int max_attempts, std::function<double()> random)
      : left_(max_attempts - 1), random_(std::move(random)) {}

  // How long to wait before the next attempt; absent: do not. An error may be retried when it names
  // a delay (RetryInfo), is UNAVAILABLE, is ABORTED / GROUP_LOST, or, after that, is
  // INSUFFICIENT_WORKERS or NOT_SERVED: who was lost may be about to come back. A delay that the
  // error names is kept to; without one it is 0.1 s, or what an earlier error named, doubled for
  // each attempt up to 5 s, less up to a fifth at random. None when it would end after `deadline`.
  std::optional<absl::Duration> Next(const absl::Status& status, absl::Time now,
                                     absl::Time deadline);

 private:
  int left_;
  std::function<double()> random_;
  bool lost_ = false;  // A group, since the first attempt.
  absl::Duration backoff_ = absl::Milliseconds(100);
};

// The error of the last attempt at what was attempted before and ended with `earlier`, in their
// order: it says how many attempts there were, and the last of them that ended for another reason,
// which may be the cause of this one (metadata `attempts`, `earlier_attempt`). `last` where it is
// OK or there were none.
absl::Status AfterAttempts(const absl::Status& last, const std::vector<absl::Status>& earlier);

// A random number in [0, 1).
double RandomFraction();

// A call that waits for its answer, made again as the policy says. `call` gets what is left until
// `deadline`; times are those of `now`.
template <typename Response>
absl::StatusOr<Response> CallWithRetries(
    RetryPolicy policy, absl::Time deadline, const std::function<absl::Time()>& now,
    const std::function<void(absl::Duration)>& sleep,
    const std::function<absl::StatusOr<Response>(absl::Duration left)>& call) {
  std::vector<absl::Status> earlier;
  while (true) {
    absl::StatusOr<Response> response = call(deadline - now());
    if (response.ok()) return response;
    const std::optional<absl::Duration> delay = policy.Next(response.status(), now(), deadline);
    if (!delay.has_value()) return AfterAttempts(response.status(), earlier);
    earlier.push_back(response.status());
    sleep(*delay);
  }
}

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_RETRY_H_
