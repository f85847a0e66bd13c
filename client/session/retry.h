#ifndef ANNULUS_CLIENT_SESSION_RETRY_H_
#define ANNULUS_CLIENT_SESSION_RETRY_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace annulus {

// Decides if and when a job is sent again after an error. Its only state is the number of attempts
// left, the backoff and the source of random numbers.
class RetryPolicy {
 public:
  // `max_attempts` is the maximum number of sends. `random` returns numbers in [0, 1).
  RetryPolicy(int max_attempts, std::function<double()> random)
      : left_(max_attempts - 1), random_(std::move(random)) {}

  // The delay before the next attempt, or nothing if there must be none: no attempts are left, the
  // attempt would start at `deadline` or later, or the error is not retryable. Retryable errors:
  // - any error with a delay (RetryInfo): that delay
  // - UNAVAILABLE; ABORTED / GROUP_LOST; after a GROUP_LOST also INSUFFICIENT_WORKERS and
  //   NOT_SERVED, because a lost worker may come back: the backoff
  // The backoff starts at 0.1 s and doubles with each attempt, up to 5 s. After an error with a
  // longer delay it goes on from that delay. A random part of up to one fifth is subtracted.
  std::optional<absl::Duration> Next(const absl::Status& status, absl::Time now,
                                     absl::Time deadline);

 private:
  int left_;
  std::function<double()> random_;
  bool lost_ = false;  // True after a GROUP_LOST.
  absl::Duration backoff_ = absl::Milliseconds(100);
};

// Returns `last`, the error of the last attempt, with two additions to message and metadata:
// `attempts`, the number of attempts, and `earlier_attempt`, the latest error in `earlier` that has
// another reason (it may be the cause; if all are alike, the latest). `earlier` has the errors of
// the earlier attempts in order. Returns `last` unchanged if it is OK or `earlier` is empty.
absl::Status AfterAttempts(const absl::Status& last, const std::vector<absl::Status>& earlier);

// A random number in [0, 1). Thread-safe.
double RandomFraction();

// Makes a blocking call and retries it as `policy` allows. `call` gets the time that is left until
// `deadline`. Times are those of `now`. Errors: AfterAttempts().
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
