#ifndef ANNULUS_WORKER_DATA_PLANE_RATE_FLOOR_H_
#define ANNULUS_WORKER_DATA_PLANE_RATE_FLOOR_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace annulus {

struct RateLimits {
  // A client that keeps this side waiting for `window`, and for longer by what it has moved at this
  // many bytes per second, has stalled. What was moved early saves no more than one window.
  int64_t floor_bytes_per_second = 64 << 10;
  // Long, because a client that feeds the shards of a job one after the other leaves each of them
  // waiting.
  absl::Duration window = absl::Minutes(2);
};

// DEADLINE_EXCEEDED / `reason`; `what`: "upload".
absl::Status StallError(absl::string_view reason, absl::string_view what, const RateLimits& limits);

// Whether a client keeps up. Only the time counts in which this side waits for it: a slow worker is
// not the client's fault. Pure; one thread at a time.
class RateFloor {
 public:
  explicit RateFloor(const RateLimits& limits) : limits_(limits), patience_(limits.window) {}

  // From now on the client is waited for.
  void Wait(absl::Time now) {
    since_ = now;
    waiting_ = true;
  }
  // The client has moved `bytes`, and is no longer waited for.
  void Moved(int64_t bytes, absl::Time now) {
    const double seconds =
        static_cast<double>(bytes) / static_cast<double>(limits_.floor_bytes_per_second);
    patience_ = std::min(limits_.window, Left(now) + absl::Seconds(seconds));
    waiting_ = false;
  }
  bool Stalled(absl::Time now) const { return Left(now) <= absl::ZeroDuration(); }

 private:
  absl::Duration Left(absl::Time now) const {
    return waiting_ ? patience_ - (now - since_) : patience_;
  }

  const RateLimits limits_;
  absl::Duration patience_;  // Without the wait that is under way.
  absl::Time since_;
  bool waiting_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_RATE_FLOOR_H_
