#ifndef ANNULUS_SERVER_COORDINATOR_SEGMENT_SCHEDULER_H_
#define ANNULUS_SERVER_COORDINATOR_SEGMENT_SCHEDULER_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// When a group's runs get device memory and segments. Every command goes to all ranks of a run in
// one event, so that the lanes of all workers are projections of one order and overlapping groups
// cannot deadlock.

// Sends Prepare to runs whose shards are there, in the order of placement, where all ranks have
// room and the group has no two other runs prepared or running. An earlier run that waits for bytes
// keeps later ones from taking them.
void PrepareRuns(CoordinatorTables& tables);

// Workers where the next run of a group waits for device memory, each with the number of the
// earliest such job. Jobs of one rank that came later, and would take theirs when they are placed,
// must not take what becomes free there before that run has enough; earlier ones may, so that a
// stream of either kind starves nobody.
std::map<int64_t, int64_t> AwaitedDevices(const CoordinatorTables& tables);

// INTERNAL / SCHEDULE_MISMATCH unless all ranks have as many steps and for every pair send(a→b) =
// receive(b←a).
absl::Status CheckPrepared(const RunRecord& run);

// Into how many segments the run is cut.
void SetSegments(RunRecord& run);

// Issues segments while a group has fewer than the limit outstanding: of its prepared and running
// runs one goes on, that of the least served principal; of its runs the most important one, where
// kPriorityStep of waiting for its turns counts as much as 1 of priority, then the one whose last
// segment is the longest ago. None that would let a group wait for its workers for longer than was
// predicted when it was opened (group_table.h).
void IssueSegments(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_SEGMENT_SCHEDULER_H_
