#ifndef ANNULUS_PROTO_RPC_GRPC_TIME_H_
#define ANNULUS_PROTO_RPC_GRPC_TIME_H_

#include <chrono>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace annulus {

// Deadlines at gRPC's border, which takes and tells them as times of day: what is left of one now
// stays left. Any thread.

// Now. absl::Now() counts cycles between its looks at the clock, and would follow one that somebody
// has set only seconds later: gRPC would see deadlines that are over.
inline absl::Time TimeOfDayNow() { return absl::FromChrono(std::chrono::system_clock::now()); }

inline absl::Time TimeOfDay(absl::Time steady) { return TimeOfDayNow() + (steady - SteadyNow()); }
inline absl::Time SteadyTime(absl::Time time_of_day) {
  return SteadyNow() + (time_of_day - TimeOfDayNow());
}

// What is left until a deadline as a gRPC context tells it; of none, for ever.
inline absl::Duration TimeLeft(std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteDuration();
  return absl::FromChrono(deadline - std::chrono::system_clock::now());
}

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_GRPC_TIME_H_
