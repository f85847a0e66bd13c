#ifndef ANNULUS_SERVER_COORDINATOR_RUN_COMPLETION_H_
#define ANNULUS_SERVER_COORDINATOR_RUN_COMPLETION_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// How runs end, for any reason. Segments are issued to all ranks in one step, so every rank has the
// same ones, and no rank stops alone. Issued segments finish (kHalting), and no more are issued.
// Then every rank gets Drop (kDropping).
enum class Group : bool { kAlive, kGone };

// Starts the end of a run. Idempotent. With Group::kGone nothing is waited for: AbortGroup has been
// sent and ends the segments. May erase the run.
void HaltRun(CoordinatorTables& tables, int64_t run, Group group);

// A segment of a halting run has ended. Drops the run if it was the last one.
void ContinueHalting(CoordinatorTables& tables, int64_t run);

// The rank holds nothing any more: its worker answered Drop, or is lost. May erase the run.
void RankGone(CoordinatorTables& tables, int64_t run, int32_t rank);

// The rank of a live run holds nothing any more: its worker has freed the delivered outputs. The
// run stays.
void RankFreed(CoordinatorTables& tables, RunRecord& run, int32_t rank);

// Answers did not come in time: marks the group or the workers as lost.
void OnRunTimer(CoordinatorTables& tables, int64_t run);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_RUN_COMPLETION_H_
