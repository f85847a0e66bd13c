#ifndef ANNULUS_SERVER_COORDINATOR_KEPT_STATE_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_KEPT_STATE_TRANSITIONS_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// How kept states end (kept_state.h says what they are).

// Somebody wants the state gone.
void OnReleaseState(CoordinatorTables& tables, const event::ReleaseState& event);

// Its time may be over.
void OnKeptTimer(CoordinatorTables& tables, int64_t job);

// A rank of the run is lost, and with it the state.
void LoseKeptRun(CoordinatorTables& tables, const RunRecord& run);

// Ends the states whose workers leave, and the waiting jobs whose state is lost; drops what nobody
// uses any more. The end of every event calls it.
void SettleKept(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_KEPT_STATE_TRANSITIONS_H_
