#ifndef ANNULUS_SERVER_COORDINATOR_ADMISSION_H_
#define ANNULUS_SERVER_COORDINATOR_ADMISSION_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Who may enter the queue. A refused job leaves no trace; the refusals, in the order in which they
// are looked for: ALREADY_EXISTS / REQUEST_ID_REUSED, and of who joins a job RESOURCE_EXHAUSTED /
// TOO_MANY_CALLS, QUEUE_FULL; UNAVAILABLE / DRAINING, NO_WORKERS, STARTING;
// FAILED_PRECONDITION / INSUFFICIENT_WORKERS; UNIMPLEMENTED / NOT_SERVED; RESOURCE_EXHAUSTED /
// QUEUE_FULL, TOO_MANY_STATES; those of FindState (kept_state.h); planning's own
// (FAILED_PRECONDITION / INSUFFICIENT_CAPACITY …); DEADLINE_EXCEEDED / DEADLINE_UNREACHABLE.
void OnRunJob(CoordinatorTables& tables, const event::RunJob& event);

// A dry run: the plan, or the refusal of workers, capacity or execution.
void OnPlanJob(CoordinatorTables& tables, const event::PlanJob& event);

// A plan made elsewhere.
void OnPlanned(CoordinatorTables& tables, const event::Planned& event);

// Plans again the waiting jobs whose plan no longer fits the membership: one small one at most in
// an event, the others elsewhere. None is placed meanwhile. The end of every event calls it.
void PlanWaitingJobs(CoordinatorTables& tables);

// Tells the state of jobs that were submitted and not placed in the same event.
void AnnounceJobs(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_ADMISSION_H_
