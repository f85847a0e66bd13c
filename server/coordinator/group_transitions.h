#ifndef ANNULUS_SERVER_COORDINATOR_GROUP_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_GROUP_TRANSITIONS_H_

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Groups: sets of workers that share a communicator. The wanted groups are the family
// (CoordinatorTables::Family, state/group_family.h). A group passes through the states of
// GroupRecord (state/group_table.h).
//
// Formation (group_transitions.cc) has two phases:
// - MembershipChanged sets a timer, formation_delay after the last change. When it expires,
//   FollowFamily closes unwanted groups (CloseUnwanted) and opens missing ones (OpenMissing). A
//   group with a member that still aborts another group waits, as the memory of the other group is
//   not free yet (BusyWorkers).
// - kOpening: Open sends OpenGroup to every member. OnOpened collects each rank's bootstrap.
// - ConnectOpened waits until no member runs a segment or aborts another group: a late rank would
//   keep the others waiting for too long. Meanwhile segments that would delay the group are not
//   issued (segment_scheduler.h).
// - kConnecting: Connect sends all bootstraps to every member (ConnectGroup). After GroupConnected
//   of every rank the group is kReady (OnConnected), and jobs may be placed on it.
//
// Failure: an error of a member, GroupBroken (OnBroken), or no answer within formation_timeout
// (OnGroupTimer) leads to FailGroup. It aborts the group. The next formation of the same members
// waits for a pause, which doubles from formation_delay to max_formation_pause (NoteFailure). A
// failed formation also raises membership_epoch, so that waiting jobs are planned again.
//
// End:
// - kClosing: a ready group that the family no longer has gets CloseGroup when no run needs it
//   (CloseUnwanted, Close).
// - kAborting: AbortGroup sends AbortGroup to every member. Runs on the group are lost (LoseRun).
// - EraseIfOver removes the group after GroupClosed of every live member. A member that does not
//   answer within AnswerTime (answer_time.h) is lost.
// - A lost worker aborts its live groups and is no longer awaited in the others (LeaveGroups).

// Called when the membership has changed. The family is recomputed after formation_delay.
void MembershipChanged(CoordinatorTables& tables);

// Opens, connects and closes groups to match the present family, as far as possible now. Called at
// the end of every event.
void ReconcileGroups(CoordinatorTables& tables);

// Aborts the group on all members. Jobs on it run again or end. The next generation follows.
// Idempotent.
void AbortGroup(CoordinatorTables& tables, int64_t group, const absl::Status& cause);

// Removes a lost worker from all groups.
void LeaveGroups(CoordinatorTables& tables, int64_t worker, const absl::Status& cause);

// Handles GroupOpened, GroupConnected, GroupBroken and GroupClosed. Events of an old generation
// change nothing.
void OnGroupEvent(CoordinatorTables& tables, int64_t worker, const control::v1::WorkerEvent& event);

// An answer of a group's members did not come in time.
void OnGroupTimer(CoordinatorTables& tables, int64_t group);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_GROUP_TRANSITIONS_H_
