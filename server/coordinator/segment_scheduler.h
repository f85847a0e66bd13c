#ifndef ANNULUS_SERVER_COORDINATOR_SEGMENT_SCHEDULER_H_
#define ANNULUS_SERVER_COORDINATOR_SEGMENT_SCHEDULER_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Decides when runs of groups get device memory and segments. Every command goes to all ranks of a
// run in one event. All commands therefore have one order, and each worker's lane runs its own
// commands in that order. So workers cannot wait for one another in a cycle, and overlapping groups
// cannot deadlock.

// Sends Prepare to runs whose shards are complete, in the order of placement, if all ranks have
// room and the group has no two other runs prepared or running. An earlier run that waits for bytes
// keeps later ones from taking them.
void PrepareRuns(CoordinatorTables& tables);

// Workers on which the next run of a group waits for device memory, each with the number of the
// earliest such job. Solo jobs take their device memory when they are placed. A solo job that came
// later must not take memory that becomes free there before that run has enough. An earlier one
// may. So neither kind can starve the other.
std::map<int64_t, int64_t> AwaitedDevices(const CoordinatorTables& tables);

// INTERNAL / SCHEDULE_MISMATCH unless all ranks have the same number of steps, and send(a→b) =
// receive(b←a) for every pair.
absl::Status CheckPrepared(const RunRecord& run);

// Sets the number of segments of the run.
void SetSegments(RunRecord& run);

// Issues segments while a group has fewer than the limit outstanding. One of the group's prepared
// and running runs continues:
// - a run of the least served principal;
// - of these, the most important one, where kPriorityStep of waiting for its turn counts as 1 of
//   priority;
// - of these, the one whose last segment was issued the longest ago.
//
// No segment is issued that would make a forming group wait for its workers longer than was
// predicted when it was opened (state/group_table.h).
void IssueSegments(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_SEGMENT_SCHEDULER_H_
