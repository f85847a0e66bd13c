#ifndef ANNULUS_SERVER_COORDINATOR_JOB_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_JOB_TRANSITIONS_H_

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// A job's states and who is told of them.

// Numbers the event and sends it to every call that follows the job.
void Notify(CoordinatorTables& tables, JobRecord& job, v1::JobEvent event);

// Tells a state to all, the same as before too. A terminal one is EndJob's to set.
void SetState(CoordinatorTables& tables, JobRecord& job, v1::Job::State state);

// A call follows the job from now on: it is told the present state, then, where the job is placed,
// the placement and the ranks that are ready. A call on an ended job is told so and ends. An
// owner's end may end the job.
void Attach(CoordinatorTables& tables, JobRecord& job, int64_t call, CallKind kind);

// A call follows the job no more, and ends a job that has no other owner and is not detached.
void Leave(CoordinatorTables& tables, JobRecord& job, int64_t call);

// Gives the job its one terminal state, tells and ends its calls, and halts its run. Does nothing
// to a job that has ended.
void EndJob(CoordinatorTables& tables, JobRecord& job, v1::Job::State state, absl::Status error);

// The job's run is lost (and already halted): it waits to run again, or ends as GROUP_LOST.
void RunAgain(CoordinatorTables& tables, JobRecord& job, const absl::Status& cause);

// Puts a planned job into the queue; where it waits already, by the plan that it has now.
void Enqueue(CoordinatorTables& tables, JobRecord& job);
// What the queue is told of a job with such a plan; `number` 0 for one that has none yet.
struct Waits {
  int64_t number = 0;
  std::string principal;
  absl::Time since;
};
FairQueue::Entry QueueEntryOf(const Submission& submission, const JobPlan& plan, const Waits& job);

// How long a detached job's outputs are kept.
absl::Duration ResultTtl(const CoordinatorTables& tables, const JobRecord& job);

// Sets the job's timer to the next moment at which time alone changes it.
void ArmJobTimer(CoordinatorTables& tables, const JobRecord& job);
// Ends the job where a deadline has passed, and calls where theirs has.
void OnJobTimer(CoordinatorTables& tables, int64_t job);
// The deadline has passed, or the last owner is gone: the error that says so.
absl::Status DeadlineError(const JobRecord& job);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_JOB_TRANSITIONS_H_
