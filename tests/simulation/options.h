#ifndef ANNULUS_TESTS_SIMULATION_OPTIONS_H_
#define ANNULUS_TESTS_SIMULATION_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace annulus {

// A bug that the simulation adds to a right coordinator, to the messages around it or to its state,
// to see that the checks find it.
enum class Planted : uint8_t {
  kNone,
  kTwoEnds,       // A terminal state is told twice.
  kSwappedLanes,  // One worker gets two lane commands in the other order.
  kEarlyRelease,  // Workers say Dropped before they have freed the shard.
  kLostDrop,      // A Drop never reaches a worker's tables.
  kGhost,         // An event of a lost incarnation is passed on as its successor's.
  kKeptBytes,     // The ledger skips a release.
};

struct SimOptions {
  uint64_t seed = 1;
  int workers = 4;  // At most 8.
  int jobs = 12;
  // Faults of processes and streams; without them only clients misbehave.
  bool faults = true;
  bool coordinator_restarts = true;
  size_t max_queued_jobs = 8;
  int32_t solo_jobs_per_worker = 2;
  absl::Duration length = absl::Seconds(25);     // While jobs come and faults happen.
  absl::Duration settling = absl::Seconds(150);  // After it everything must have come to rest.
  Planted planted = Planted::kNone;
  bool fingerprint = false;  // Keep one of every event, action and state: slow.
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_OPTIONS_H_
