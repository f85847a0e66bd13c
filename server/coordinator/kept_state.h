#ifndef ANNULUS_SERVER_COORDINATOR_KEPT_STATE_H_
#define ANNULUS_SERVER_COORDINATOR_KEPT_STATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// The state of a forward job (spec.forward.keep_state). Its shards stay on its workers after it has
// succeeded. They lend their tensors to the shards of gradients jobs that name the state. A state
// ends once: by use, by ReleaseState, by time, or with a worker. After that no job may name it.
// When no job and no run uses it, its shards are dropped (kept_state_transitions.h).

// The number of bytes of a worker's staging memory that kept states may take.
int64_t KeptLimit(const CoordinatorTables& tables, int64_t staging_bytes);

// The state that a submission uses, and the resulting execution: the execution of the state decides
// which rank has which rows.
struct UsedState {
  JobRecord* lender = nullptr;  // Null: the submission uses none.
  Execution execution;
};
// The state that `submission` uses. Errors, in the order of checks:
// - NOT_FOUND / STATE_NOT_FOUND, also for the state of another principal;
// - FAILED_PRECONDITION / STATE_NOT_READY;
// - NOT_FOUND / STATE_RELEASED, STATE_EXPIRED, STATE_LOST;
// - INVALID_ARGUMENT / STATE_MISMATCH for another spec, or an execution that asks for other ranks
//   or rows.
absl::StatusOr<UsedState> FindState(CoordinatorTables& tables, absl::string_view principal,
                                    const Submission& submission);
// The state that an accepted job uses, and the resulting execution. Requires: the state still
// exists. Among FindState's errors, only those of the execution are possible.
absl::StatusOr<UsedState> StateOf(CoordinatorTables& tables, const JobRecord& job);
// Checks that one more job may keep its state. RESOURCE_EXHAUSTED / TOO_MANY_STATES above
// max_kept_states. RESOURCE_EXHAUSTED / QUEUE_FULL in these cases, in this order:
// - jobs that will keep their state take half of the queue;
// - max_waiting_keepers such jobs of the principal wait for states to end;
// - the requests of such jobs would take more than half of the memory for requests.
absl::Status CheckMayKeep(const CoordinatorTables& tables, absl::string_view principal,
                          const Submission& submission);
// INTERNAL / INVALID_PLAN unless a plan gives the ranks the same rows as the state.
// FAILED_PRECONDITION / INSUFFICIENT_CAPACITY if a worker of the state could never hold its part
// beside the state: such a job would wait forever and keep others waiting.
absl::Status CheckPlanOnState(const CoordinatorTables& tables, const JobPlan& plan,
                              const JobRecord& lender);

// Called when a job is accepted: it will keep its state, or uses the state of `lender`.
void TakeState(CoordinatorTables& tables, JobRecord& job, JobRecord* lender);
// Called before the end of a job in `state` is sent. A state that the job keeps is now held; a
// state that it used is returned. True if the job's run stays.
bool SettleState(CoordinatorTables& tables, JobRecord& job, v1::Job::State state);

// Ends the state: no job may name it any more. Does nothing to a state that has ended.
void EndState(CoordinatorTables& tables, JobRecord& job, KeptStatus why);

// The error of a job whose state is lost before the job could use it. While the coordinator drains,
// the error is DRAINING: a retry that sends the tensors is served by the next coordinator.
absl::Status LossError(const CoordinatorTables& tables, const JobRecord& lender);

// The reason why an ended state cannot be used; OK for other states.
absl::Status StateError(const JobRecord& lender);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_KEPT_STATE_H_
