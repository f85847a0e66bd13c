#ifndef ANNULUS_SERVER_COORDINATOR_GROUP_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_GROUP_TRANSITIONS_H_

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Groups: formed in two phases (every rank's bootstrap, then all to all), closed when the family no
// longer has them and no job needs them, aborted when they are poisoned or lose a member.

// The membership has changed: the family is looked at after formation_delay.
void MembershipChanged(CoordinatorTables& tables);

// Makes the groups those of the present family, as far as can be now. The end of every event calls
// it.
void ReconcileGroups(CoordinatorTables& tables);

// All members abort; the jobs on it run again or end; the next generation follows. Idempotent.
void AbortGroup(CoordinatorTables& tables, int64_t group, const absl::Status& cause);

// The worker is lost: it takes part in nothing any more.
void LeaveGroups(CoordinatorTables& tables, int64_t worker, const absl::Status& cause);

// GroupOpened, GroupConnected, GroupBroken, GroupClosed. What speaks of an old generation changes
// nothing.
void OnGroupEvent(CoordinatorTables& tables, int64_t worker, const control::v1::WorkerEvent& event);

// An answer did not come in time.
void OnGroupTimer(CoordinatorTables& tables, int64_t group);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_GROUP_TRANSITIONS_H_
