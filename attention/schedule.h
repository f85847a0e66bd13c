#ifndef ANNULUS_ATTENTION_SCHEDULE_H_
#define ANNULUS_ATTENTION_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/schedule_data.h"

namespace annulus {

// The schedule of `rank` (0 … world_size − 1): a pure function in integers, the same on every
// machine. With one rank, or with nothing to attend, every strategy gives the one-rank schedule of
// tasks over own rows. UNIMPLEMENTED for a strategy without a builder. INVALID_ARGUMENT for a rank
// out of range, and for degrees that are not resolved or do not fit the plan (attention/degrees.h).
absl::StatusOr<RankSchedule> MakeSchedule(const ScheduleRequest& request, int32_t rank);

// The schedules of all ranks, for the checker, the cost model and pictures: Θ(W²) data. A rank that
// runs a job builds only its own.
absl::StatusOr<std::vector<RankSchedule>> MakeGroupSchedules(const ScheduleRequest& request);

// Number that changes whenever MakeShardPlan, MakeSchedule or SplitSteps may give another result
// for the same request. Workers and coordinator must agree on it.
inline constexpr int32_t kScheduleVersion = 10;

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_H_
