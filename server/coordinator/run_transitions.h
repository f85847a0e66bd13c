#ifndef ANNULUS_SERVER_COORDINATOR_RUN_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_RUN_TRANSITIONS_H_

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// A run from its placement to its end: what workers report of shards, and what follows.

// A worker's event about a shard. What speaks of a run that is over, of another worker's rank or of
// a step that was not asked for changes nothing.
void OnShardEvent(CoordinatorTables& tables, int64_t worker, const control::v1::WorkerEvent& event);

// Takes device memory for runs whose shards are there, and issues segments: the next one while
// the current one runs. The end of every event calls it.
void AdvanceRuns(CoordinatorTables& tables);

// The run cannot go on, though its job may: halts it and lets the job run again.
void LoseRun(CoordinatorTables& tables, int64_t run, const absl::Status& cause);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_RUN_TRANSITIONS_H_
