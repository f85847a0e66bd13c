#ifndef ANNULUS_PROTO_RPC_GRPC_TIME_H_
#define ANNULUS_PROTO_RPC_GRPC_TIME_H_

#include <chrono>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace annulus {

// Deadlines at the border to gRPC, which uses times of day. The conversion keeps the time that is
// left now. Thread-safe.

// The present time of day. absl::Now() counts cycles between its readings of the clock. After
// the clock is set, it follows only seconds later, and gRPC would receive deadlines that have
// passed.
inline absl::Time TimeOfDayNow() { return absl::FromChrono(std::chrono::system_clock::now()); }

inline absl::Time TimeOfDay(absl::Time steady) { return TimeOfDayNow() + (steady - SteadyNow()); }
inline absl::Time SteadyTime(absl::Time time_of_day) {
  return SteadyNow() + (time_of_day - TimeOfDayNow());
}

// The time left until a deadline as a gRPC context gives it; InfiniteDuration if there is none.
inline absl::Duration TimeLeft(std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteDuration();
  return absl::FromChrono(deadline - std::chrono::system_clock::now());
}

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_GRPC_TIME_H_
