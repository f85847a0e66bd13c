#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_FOLD_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_FOLD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Checks that the bits of a deterministic job do not depend on its plan:
// - Ranks send and add no sums, except complete bias gradients.
// - Each task takes keys that are adjacent in the job, in whole tiles of the plan's granule at
//   global multiples. A sequence or the job may end inside a tile.
// - A row of query sums meets its keys in increasing order.
// - Key gradients: the same for queries. No tile of queries is in two tasks, unless a sequence ends
//   in between. Query heads of one key/value head that have their own tasks alternate, tile by
//   tile.
// OK for other jobs.
absl::Status CheckFold(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_FOLD_H_
