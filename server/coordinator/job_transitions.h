#ifndef ANNULUS_SERVER_COORDINATOR_JOB_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_JOB_TRANSITIONS_H_

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// States of a job, and the calls that follow it.

// Numbers the event and sends it to every call that follows the job.
void Notify(CoordinatorTables& tables, JobRecord& job, v1::JobEvent event);

// Sends a state to all calls, also if it is unchanged. Terminal states are set by EndJob.
void SetState(CoordinatorTables& tables, JobRecord& job, v1::Job::State state);

// Adds a call to the job. The call receives the present state and, if the job is placed, the
// placement and the ranks that are ready. A call on an ended job receives the state and ends. When
// an owner ends, the job may end.
void Attach(CoordinatorTables& tables, JobRecord& job, int64_t call, CallKind kind);

// Removes a call from the job. Ends a job that has no other owner and is not detached.
void Leave(CoordinatorTables& tables, JobRecord& job, int64_t call);

// Sets the job's terminal state, sends it to its calls and ends them, and halts its run. Does
// nothing to a job that has ended.
void EndJob(CoordinatorTables& tables, JobRecord& job, v1::Job::State state, absl::Status error);

// The job's run is lost and already halted. The job waits to run again, or ends with GROUP_LOST.
void RunAgain(CoordinatorTables& tables, JobRecord& job, const absl::Status& cause);

// Puts a planned job into the queue. If it waits already, updates its entry to its present plan.
void Enqueue(CoordinatorTables& tables, JobRecord& job);
// The queue's view of a job with such a plan. `number` is 0 for a job that has none yet.
struct Waits {
  int64_t number = 0;
  std::string principal;
  absl::Time since;
};
FairQueue::Entry QueueEntryOf(const Submission& submission, const JobPlan& plan, const Waits& job);

// How long a detached job's outputs are kept.
absl::Duration ResultTtl(const CoordinatorTables& tables, const JobRecord& job);

// Sets the job's timer to the next time at which time alone changes it.
void ArmJobTimer(CoordinatorTables& tables, const JobRecord& job);
// Ends the job if one of its deadlines has passed, and calls whose deadline has passed.
void OnJobTimer(CoordinatorTables& tables, int64_t job);
// The error of a job whose deadline has passed or whose last owner is gone.
absl::Status DeadlineError(const JobRecord& job);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_JOB_TRANSITIONS_H_
