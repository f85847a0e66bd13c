#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_CHECKER_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_CHECKER_H_

#include <vector>

#include "absl/status/status.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Proves the schedules of a group correct without running them (docs/explanation/architecture.md,
// "The checker"):
// - Blocks and transfers are in range.
// - For each pair of ranks and step, sends and receives name the same regions in the same order. So
//   no order of ranks can deadlock.
// - Tasks and ops read only present data and write nothing in flight.
// - Every visible (query row, head, key row) is attended exactly once. For gradients: once for its
//   query and once for its key.
// - Every output row reaches its owner once.
// - Live buffers do not overlap in memory.
//
// Also checks split schedules (SplitSteps), and schedules whose rows begin and end in tasks
// (WithRowEnds): each row begins once, before anything is added to it, and ends once, after all is
// added. `in_staging`: by rank, the buffers that its device uses directly in staging; empty: none.
// Nothing writes to an input there, and no transfer uses it.
//
// Takes time linear in the size of the schedules, except for stripes, whose visible pairs are
// counted row by row. FAILED_PRECONDITION / SCHEDULE_BROKEN with the rank, step and broken rule.
absl::Status CheckSchedule(const ScheduleRequest& request, const std::vector<RankSchedule>& ranks,
                           const std::vector<ArenaPlan>& placements,
                           const std::vector<std::vector<bool>>& in_staging = {});

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_CHECKER_H_
