#ifndef ANNULUS_SERVER_COORDINATOR_JOB_PLACEMENT_H_
#define ANNULUS_SERVER_COORDINATOR_JOB_PLACEMENT_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// THE place where a job is admitted to workers. Gives waiting jobs a place, in the queue's order:
// staging on all ranks or none (device memory at once for one rank), at most `jobs_ahead_per_group`
// not yet started on a group and `solo_jobs_per_worker` on a worker. Then, in the same event,
// Reserve to every rank's worker and the placement with its tickets to the client. A job that waits
// for bytes keeps later ones from taking them on the same workers. The end of every event calls it.
void PlaceJobs(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_JOB_PLACEMENT_H_
