#ifndef ANNULUS_SERVER_COORDINATOR_RUN_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_RUN_TRANSITIONS_H_

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// A run from its placement to its end: reports of workers about shards, and their consequences.

// Handles a worker's event about a shard. Events of a run that is over, of another worker's rank,
// or of a step that was not requested change nothing.
void OnShardEvent(CoordinatorTables& tables, int64_t worker, const control::v1::WorkerEvent& event);

// Takes device memory for runs whose shards are complete, and issues segments: the next one while
// the current one runs. Called at the end of every event.
void AdvanceRuns(CoordinatorTables& tables);

// The run cannot continue, though its job may. Halts the run; the job runs again or ends.
void LoseRun(CoordinatorTables& tables, int64_t run, const absl::Status& cause);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_RUN_TRANSITIONS_H_
