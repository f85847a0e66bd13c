#ifndef ANNULUS_ATTENTION_SCHEDULE_SCHEDULE_H_
#define ANNULUS_ATTENTION_SCHEDULE_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// The most tasks of a deterministic job, of all ranks. Gradients in one pass meet every run of keys
// that lie side by side tile by tile of queries, so that layouts of many short runs have more tasks
// than a planner could hold.
inline constexpr int64_t kMaxFoldTasks = int64_t{1} << 20;

// The schedule of `rank` (0 … world_size − 1): a pure function in integers, the same on every
// machine. With one rank, or with nothing to attend, every strategy gives the one-rank schedule of
// tasks over own rows. UNIMPLEMENTED for a strategy without a builder. INVALID_ARGUMENT for a rank
// out of range, and for degrees that are not resolved or do not fit the plan
// (attention/spec/parallel_degrees.h); with LIMIT_EXCEEDED for more than kMaxFoldTasks.
absl::StatusOr<RankSchedule> MakeSchedule(const ScheduleRequest& request, int32_t rank);

// The schedules of all ranks, for the checker, the cost model and pictures: Θ(W²) data. A rank that
// runs a job builds only its own. LIMIT_EXCEEDED where all together have more than kMaxFoldTasks.
absl::StatusOr<std::vector<RankSchedule>> MakeGroupSchedules(const ScheduleRequest& request);

// Whether ranks may send one another anything that they have computed. False: all that travels is
// as clients have sent it, so that what a rank fails to compute costs its peers nothing.
bool ResultsTravel(const AttentionSpec& spec, const Execution& execution);

// Device memory behind a rank's arena, in which ranks that send results tell one another whether
// they have theirs: a byte for each of them.
int64_t VerdictBytes(const AttentionSpec& spec, const Execution& execution, int32_t world_size);

// Number that changes whenever MakeShardPlan, MakeSchedule, SplitSteps, ResultsTravel or
// VerdictBytes may give another result for the same request, or ranks say more or less to one
// another beside their schedules. Workers and coordinator must agree on it.
inline constexpr int32_t kScheduleVersion = 12;

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_SCHEDULE_H_
