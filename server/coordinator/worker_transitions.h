#ifndef ANNULUS_SERVER_COORDINATOR_WORKER_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_WORKER_TRANSITIONS_H_

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Membership: registration, leases, fencing, leaving.

// The first message of a connection must be Register. Events of another term, and numbers already
// seen, change nothing; a number that skips one ends the connection, and the worker sends again.
void OnWorkerSaid(CoordinatorTables& tables, const event::WorkerSaid& said);

// The stream is over: the worker is suspect at once, and lost when its lease runs out.
void OnWorkerGone(CoordinatorTables& tables, int64_t connection);

// Looks at the lease.
void OnWorkerTimer(CoordinatorTables& tables, int64_t worker);

// The incarnation is lost for good: its groups abort, its jobs run again, its connection ends.
void LoseWorker(CoordinatorTables& tables, int64_t worker, absl::string_view cause,
                const absl::Status& farewell);

// Tells workers that leave and hold nothing any more that they may go. The end of every event calls
// it.
void ReleaseLeaving(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_WORKER_TRANSITIONS_H_
