#ifndef ANNULUS_TESTS_SIMULATION_INVARIANTS_H_
#define ANNULUS_TESTS_SIMULATION_INVARIANTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Invariants of a coordinator after every event. Stores the history that they need.
class Invariants {
 public:
  // The first violation, if any.
  absl::Status Check(const CoordinatorTables& tables);

 private:
  absl::Status CheckLeases(const CoordinatorTables& tables) const;
  absl::Status CheckLedger(const CoordinatorTables& tables) const;
  absl::Status CheckJobs(const CoordinatorTables& tables);
  absl::Status CheckRuns(const CoordinatorTables& tables) const;
  absl::Status CheckStates(const CoordinatorTables& tables) const;
  absl::Status CheckGroups(const CoordinatorTables& tables);

  int64_t term_ = 0;
  int64_t highest_generation_ = 0;
  std::set<int64_t> generations_;                // At the last check.
  std::map<std::string, v1::Job::State> ended_;  // Key: job id.
};

// Everything that events can change, except times and counts of messages. Equal before and after an
// event without effect.
std::string Snapshot(const CoordinatorTables& tables);

// The live run that a worker's report of a failed shard is about, or 0. Such a run must end at
// once: otherwise its job would end only by its deadline.
int64_t FailingRun(const CoordinatorTables& tables, const Event& event);
// nullptr if the run is over.
const RunRecord* RunNumbered(const CoordinatorTables& tables, int64_t number);

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_INVARIANTS_H_
