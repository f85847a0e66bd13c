#ifndef ANNULUS_WORKER_DATA_PLANE_RATE_FLOOR_H_
#define ANNULUS_WORKER_DATA_PLANE_RATE_FLOOR_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace annulus {

struct RateLimits {
  // The lowest acceptable rate. A client may keep this side waiting for `window`, plus the time
  // that the bytes it has moved take at this rate. Unused time never exceeds one window.
  int64_t floor_bytes_per_second = 64 << 10;
  // Long, because a client that sends the shards of a job one after another keeps the others
  // waiting.
  absl::Duration window = absl::Minutes(2);
};

// DEADLINE_EXCEEDED / `reason`. `what`: for example "upload".
absl::Status StallError(absl::string_view reason, absl::string_view what, const RateLimits& limits);

// Detects clients that are too slow. Counts only time in which this side waits for the client,
// since a slow worker is not the client's fault. Pure. Not thread-safe.
class RateFloor {
 public:
  explicit RateFloor(const RateLimits& limits) : limits_(limits), patience_(limits.window) {}

  // Starts waiting for the client.
  void Wait(absl::Time now) {
    since_ = now;
    waiting_ = true;
  }
  // The client has moved `bytes`; stops waiting.
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
  absl::Duration patience_;  // Time left, not counting the current wait.
  absl::Time since_;
  bool waiting_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_RATE_FLOOR_H_
