#ifndef ANNULUS_ATTENTION_CHECK_CHECK_FOLD_H_
#define ANNULUS_ATTENTION_CHECK_CHECK_FOLD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/schedule_data.h"

namespace annulus {

// What makes the bits of a deterministic job the same for any plan: no partial is sent, merged or
// copied; every task takes keys that lie side by side in the job, in whole tiles of the plan's
// granule from global multiples on (a sequence or the job may end inside one); and an accumulator
// row meets its keys in increasing order. OK for other jobs.
absl::Status CheckFold(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_CHECK_CHECK_FOLD_H_
