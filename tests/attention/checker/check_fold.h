#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_FOLD_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_FOLD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// What makes the bits of a deterministic job the same for any plan: no sums are sent (but gradients
// of a bias that are complete) or added up; every task takes keys that lie side by side in
// the job, in whole tiles of the plan's granule from global multiples on (a sequence or the job may
// end inside one); and a row of sums of queries meets its keys in increasing order. Gradients of
// keys likewise: queries side by side, no tile of them in two tasks unless a sequence ends between,
// and in increasing order; query heads of one key/value head that have tasks of their own take
// turns, tile by tile. OK for other jobs.
absl::Status CheckFold(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_FOLD_H_
