#ifndef ANNULUS_SERVER_COORDINATOR_RUN_COMPLETION_H_
#define ANNULUS_SERVER_COORDINATOR_RUN_COMPLETION_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// How a run ends, for whatever reason. Segments are issued to all ranks in one step, so that every
// rank has been sent the same ones; no rank stops on its own: those that were issued run out
// (kHalting), later ones are not issued, and then every rank is told to drop what it holds
// (kDropping).
enum class Group : bool { kAlive, kGone };

// Idempotent. With Group::kGone nothing is waited for: AbortGroup has been sent and ends the
// segments. May erase the run.
void HaltRun(CoordinatorTables& tables, int64_t run, Group group);

// A segment of a halting run has ended: drops the run if it was the last one.
void ContinueHalting(CoordinatorTables& tables, int64_t run);

// The rank holds nothing any more: its worker answered Drop, or is lost. May erase the run.
void RankGone(CoordinatorTables& tables, int64_t run, int32_t rank);

// The same of a live run, which stays: its worker freed what was delivered.
void RankFreed(CoordinatorTables& tables, RunRecord& run, int32_t rank);

// Answers did not come in time: dooms the group, or the workers.
void OnRunTimer(CoordinatorTables& tables, int64_t run);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_RUN_COMPLETION_H_
