#ifndef ANNULUS_SERVER_COORDINATOR_JOB_PLACEMENT_H_
#define ANNULUS_SERVER_COORDINATOR_JOB_PLACEMENT_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// The only place where jobs are given to workers. Places waiting jobs in the order of the queue:
// - A job gets staging memory on all ranks or none. A job of one rank gets its device memory at the
//   same time.
// - At most `jobs_ahead_per_group` jobs that have not started are on a group, and
//   `solo_jobs_per_worker` on a worker.
// - Reserve to every rank's worker and the placement with its tickets to the client follow in the
//   same event.
// - A job that waits for bytes keeps later jobs from taking them on the same workers.
//
// Called at the end of every event.
void PlaceJobs(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_JOB_PLACEMENT_H_
