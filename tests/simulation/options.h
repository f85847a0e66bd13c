#ifndef ANNULUS_TESTS_SIMULATION_OPTIONS_H_
#define ANNULUS_TESTS_SIMULATION_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace annulus {

// A bug that the simulation adds to the coordinator, its messages or its state, to show that the
// checks find it.
enum class Planted : uint8_t {
  kNone,
  kTwoEnds,       // A terminal state is reported twice.
  kSwappedLanes,  // One worker gets two lane commands in reverse order.
  kEarlyRelease,  // Workers report Dropped before they have freed the shard.
  kLostDrop,      // A Drop does not reach a worker's tables.
  kGhost,         // An event of a lost incarnation is delivered as its successor's.
  kKeptBytes,     // The memory ledger skips a release.
};

struct SimOptions {
  uint64_t seed = 1;
  int workers = 4;  // At most 8.
  int jobs = 12;
  // Faults of processes and streams. Without them only clients misbehave.
  bool faults = true;
  bool coordinator_restarts = true;
  size_t max_queued_jobs = 8;
  int32_t solo_jobs_per_worker = 2;
  absl::Duration length = absl::Seconds(25);  // Period in which jobs arrive and faults occur.
  // Period afterwards, at whose end everything must be idle.
  absl::Duration settling = absl::Seconds(150);
  Planted planted = Planted::kNone;
  bool fingerprint = false;  // Compute a fingerprint of all events, actions and states. Slow.
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_OPTIONS_H_
