#ifndef ANNULUS_ATTENTION_SCHEDULE_SCHEDULE_H_
#define ANNULUS_ATTENTION_SCHEDULE_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// The most tasks of a deterministic job, over all ranks. In a one-pass gradient schedule each tile
// of queries and each run of adjacent keys make a task. Layouts with many short runs would exceed
// what a planner can hold.
inline constexpr int64_t kMaxFoldTasks = int64_t{1} << 20;

// The schedule of `rank` (0 … world_size − 1). A pure function in integers, so every machine gets
// the same schedule. With one rank, or if no row sees a key, every strategy gives the one-rank
// schedule: tasks over own rows.
//
// Errors, in this order:
//
// - UNIMPLEMENTED / NOT_SERVED: the strategy has no builder
// - INVALID_ARGUMENT: a rank out of range; degrees that are not resolved or do not fit the plan
//   (attention/spec/parallel_degrees.h); a deterministic job whose sums the strategy would add by
//   rank
// - INVALID_ARGUMENT / LIMIT_EXCEEDED: a deterministic job with more than kMaxFoldTasks tasks
absl::StatusOr<RankSchedule> MakeSchedule(const ScheduleRequest& request, int32_t rank);

// The schedules of all ranks, Θ(W²) data: for the checker, the cost model and pictures. A rank that
// runs a job builds only its own. LIMIT_EXCEEDED if a deterministic job has more than kMaxFoldTasks
// tasks over all ranks.
absl::StatusOr<std::vector<RankSchedule>> MakeGroupSchedules(const ScheduleRequest& request);

// True if ranks may send one another anything that they have computed. False if all transfers carry
// data as clients have sent it. Then a rank that fails to compute its part does not affect its
// peers.
bool ResultsTravel(const AttentionSpec& spec, const Execution& execution);

// Bytes of device memory behind a rank's arena: one byte per rank, or 0 if no results travel
// (ResultsTravel). After the last step each rank sends its byte to all others. The byte says
// whether the rank's result is valid.
int64_t VerdictBytes(const AttentionSpec& spec, const Execution& execution, int32_t world_size);

// The version of the schedule rules; workers and coordinator must agree on it. Increment it when
// MakeShardPlan, MakeSchedule, SplitSteps, ResultsTravel or VerdictBytes may return another result
// for the same request, or when ranks exchange other data beside their schedules.
inline constexpr int32_t kScheduleVersion = 12;

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_SCHEDULE_H_
