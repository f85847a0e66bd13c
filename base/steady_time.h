#ifndef ANNULUS_BASE_STEADY_TIME_H_
#define ANNULUS_BASE_STEADY_TIME_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace annulus {

// The current time by a clock that setting the machine's clock does not affect. For deadlines,
// leases and durations inside one process. It starts at the time of day and may drift from it. So
// do not compare it with the time of day, and do not send it to another process. Any thread.
inline absl::Time SteadyNow() {
  static const absl::Time began = absl::Now();
  static const auto steady_began = std::chrono::steady_clock::now();
  return began + absl::FromChrono(std::chrono::steady_clock::now() - steady_began);
}

}  // namespace annulus

#endif  // ANNULUS_BASE_STEADY_TIME_H_
