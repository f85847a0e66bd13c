#ifndef ANNULUS_SERVER_COORDINATOR_KEPT_STATE_H_
#define ANNULUS_SERVER_COORDINATOR_KEPT_STATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// The state of a forward job (spec.forward.keep_state): its shards stay on its workers when it has
// succeeded, and lend their tensors to the shards of gradients jobs that name it. It ends once: by
// use, by ReleaseState, by time, or with a worker; then nobody may name it any more, and when no
// job and no run uses it its shards are dropped (kept_state_transitions.h).

// How much of a worker's staging memory kept states may take.
int64_t KeptLimit(const CoordinatorTables& tables, int64_t staging_bytes);

// The state that a submission uses, and the execution that it leaves: that of the state decides
// who has which rows.
struct UsedState {
  JobRecord* lender = nullptr;  // None: nothing changes.
  Execution execution;
};
// NOT_FOUND / STATE_NOT_FOUND (also another principal's), STATE_EXPIRED, STATE_RELEASED,
// STATE_LOST; FAILED_PRECONDITION / STATE_NOT_READY; INVALID_ARGUMENT / STATE_MISMATCH for another
// spec, or an execution that asks for other ranks or rows.
absl::StatusOr<UsedState> FindState(CoordinatorTables& tables, absl::string_view principal,
                                    const Submission& submission);
// The same of a job that was taken, whose state is still there.
absl::StatusOr<UsedState> StateOf(CoordinatorTables& tables, const JobRecord& job);
// RESOURCE_EXHAUSTED / TOO_MANY_STATES where a submission wants one more state kept, or QUEUE_FULL
// where their requests would take more than half of the memory for requests, such jobs wait in half
// of the queue, or too many of the principal wait for states to end.
absl::Status CheckMayKeep(const CoordinatorTables& tables, absl::string_view principal,
                          const Submission& submission);
// INTERNAL / INVALID_PLAN unless a plan gives the ranks the rows that the state has;
// FAILED_PRECONDITION / INSUFFICIENT_CAPACITY where a worker of it could never hold its part,
// beside the state: what was placed there would wait, and keep others waiting, for ever.
absl::Status CheckPlanOnState(const CoordinatorTables& tables, const JobPlan& plan,
                              const JobRecord& lender);

// A job is taken: it will keep its state, or uses that of `lender`.
void TakeState(CoordinatorTables& tables, JobRecord& job, JobRecord* lender);
// It ends in `state`, before it is told: what it keeps is held from now on, what it used is
// returned. True: its run stays.
bool SettleState(CoordinatorTables& tables, JobRecord& job, v1::Job::State state);

// Nothing may name the state any more. Does nothing to one that is over.
void EndState(CoordinatorTables& tables, JobRecord& job, KeptStatus why);

// What a job hears whose state is lost before it could use it. While the coordinator drains, that
// it does: who asks again, and has the tensors, is served by the next one.
absl::Status LossError(const CoordinatorTables& tables, const JobRecord& lender);

// Why a state that is over cannot be used; OK for any other.
absl::Status StateError(const JobRecord& lender);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_KEPT_STATE_H_
