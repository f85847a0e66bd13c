#ifndef ANNULUS_SERVER_COORDINATOR_ADMISSION_H_
#define ANNULUS_SERVER_COORDINATOR_ADMISSION_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Admission of jobs to the queue. A job that OnRunJob refuses leaves no trace. A job whose plan is
// made outside the event is added first, as QUEUED; OnPlanned may end it as FAILED.
//
// Errors of RunJob, in the order of checks. CoordinatorLoop::PostMail (DRAINING, QUEUE_FULL) comes
// before them:
// - a job with the same request_id runs: RESOURCE_EXHAUSTED / TOO_MANY_CALLS, ALREADY_EXISTS /
//   REQUEST_ID_REUSED, RESOURCE_EXHAUSTED / QUEUE_FULL; otherwise the call joins that job;
// - UNAVAILABLE / DRAINING, NO_WORKERS, STARTING;
// - FAILED_PRECONDITION / INSUFFICIENT_WORKERS;
// - those of CheckServers (serving.h): FAILED_PRECONDITION / MIXED_WORKERS, UNIMPLEMENTED /
//   NOT_SERVED, UNAVAILABLE / NO_WORKERS, FAILED_PRECONDITION / INSUFFICIENT_WORKERS;
// - RESOURCE_EXHAUSTED / QUEUE_FULL (jobs, then bytes of requests);
// - those of CheckMayKeep (kept_state.h): RESOURCE_EXHAUSTED / TOO_MANY_STATES, QUEUE_FULL;
// - those of FindState (kept_state.h);
// - those of planning: FAILED_PRECONDITION / INSUFFICIENT_WORKERS, INSUFFICIENT_CAPACITY …;
// - those of CheckPlanOnState (kept_state.h);
// - DEADLINE_EXCEEDED / DEADLINE_UNREACHABLE.
void OnRunJob(CoordinatorTables& tables, const event::RunJob& event);

// A dry run. Answers with the plan, or with an error of workers, dry runs (QUEUE_FULL), state or
// planning.
void OnPlanJob(CoordinatorTables& tables, const event::PlanJob& event);

// Takes the result of a plan that was made outside the event.
void OnPlanned(CoordinatorTables& tables, const event::Planned& event);

// Makes new plans for waiting jobs whose plan no longer fits the membership. At most one small plan
// is made inside an event; the others are made elsewhere. None of these jobs is placed meanwhile.
// Called at the end of every event.
void PlanWaitingJobs(CoordinatorTables& tables);

// Sends STATE_QUEUED for jobs that were submitted and not placed in the same event.
void AnnounceJobs(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_ADMISSION_H_
