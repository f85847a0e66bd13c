#ifndef ANNULUS_PROTO_GRPC_TIME_H_
#define ANNULUS_PROTO_GRPC_TIME_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

namespace annulus {

// Deadlines at gRPC's border, which takes and tells them as times of day: what is left of one now
// stays left. Any thread.
inline absl::Time TimeOfDay(absl::Time steady) { return absl::Now() + (steady - SteadyNow()); }
inline absl::Time SteadyTime(absl::Time time_of_day) {
  return SteadyNow() + (time_of_day - absl::Now());
}

}  // namespace annulus

#endif  // ANNULUS_PROTO_GRPC_TIME_H_
