#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_CHECKER_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_CHECKER_H_

#include <vector>

#include "absl/status/status.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Proves a whole group's schedules right without running them (docs/explanation/architecture.md,
// "The checker"): blocks and transfers in range; sends and receives name the same regions in the
// same order for each pair and step (so no order of ranks can deadlock); tasks and ops read only
// what is present and write nothing in flight; every visible (query row, head, key row) is attended
// exactly once; every output row reaches its owner once; live buffers do not overlap in memory.
// Linear in the entries of the schedules, but for stripes, whose visible pairs are counted row by
// row. FAILED_PRECONDITION / SCHEDULE_BROKEN with the rank, step and rule broken; OK when all hold.
// In a schedule of gradients every visible triple counts once for its query and once for its key.
// Split schedules (SplitSteps) are checked likewise, and those whose rows begin and end in tasks
// (WithRowEnds): each row begins once, before anything is added to it, and ends once, after all has
// been. `in_staging`: of each rank the buffers that its device reads and writes in staging; empty:
// no rank has any. Nobody writes to an input there, and nothing of it is sent or received.
absl::Status CheckSchedule(const ScheduleRequest& request, const std::vector<RankSchedule>& ranks,
                           const std::vector<ArenaPlan>& placements,
                           const std::vector<std::vector<bool>>& in_staging = {});

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_CHECKER_H_
