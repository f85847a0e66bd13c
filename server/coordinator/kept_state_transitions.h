#ifndef ANNULUS_SERVER_COORDINATOR_KEPT_STATE_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_KEPT_STATE_TRANSITIONS_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// How kept states end. kept_state.h describes the states.

// Handles ReleaseState.
void OnReleaseState(CoordinatorTables& tables, const event::ReleaseState& event);

// Ends the state if its time is over.
void OnKeptTimer(CoordinatorTables& tables, int64_t job);

// A rank of the run is lost, and with it the state.
void LoseKeptRun(CoordinatorTables& tables, const RunRecord& run);

// Ends the states whose workers leave, and the waiting jobs whose state is lost. Drops states that
// nothing uses any more. Called at the end of every event.
void SettleKept(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_KEPT_STATE_TRANSITIONS_H_
