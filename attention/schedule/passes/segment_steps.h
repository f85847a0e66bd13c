#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_SEGMENT_STEPS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_SEGMENT_STEPS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Steps [begin, end) of a schedule: what ranks run between two chances to stop.
struct Segment {
  int32_t step_begin = 0;
  int32_t step_end = 0;
};

// Splits steps into as many parts as `parts_of_step` says: each long step's tasks are dealt over
// sub-steps (attention/schedule/passes/split_tasks.h); its transfers are cut into row pieces over
// the same sub-steps, of a deterministic job over the first eighth of them. `parts_of_step` (one
// entry a step, >= 1) must be the same on all ranks, so it is computed from the whole request by
// StepParts. `request` is what the schedule was made from.
RankSchedule SplitSteps(const RankSchedule& schedule, const ScheduleRequest& request,
                        const std::vector<int32_t>& parts_of_step);

// How many parts each step gets so that no rank's part costs more than about `max_step_cost`. Pure;
// the same on all ranks. `costs[rank][step]` in any one unit: visible pairs, or time.
std::vector<int32_t> StepParts(const std::vector<std::vector<int64_t>>& costs,
                               int64_t max_step_cost);

// The longest that a rank is in one step, in the unit of `costs`: what the step costs, after
// waiting for those peers of its transfers that come to it later. `costs[rank][step]`; a group's
// schedules.
int64_t LongestStep(const std::vector<RankSchedule>& ranks,
                    const std::vector<std::vector<int64_t>>& costs);

// Visible pairs × query heads of each step's tasks; of gradients of one side, the part of the
// products that they take.
std::vector<int64_t> StepCosts(const RankSchedule& schedule, const ScheduleRequest& request);

// Cuts the steps of a schedule into at most `segments` runs of nearly equal step counts (at least
// one; fewer when there are fewer steps).
std::vector<Segment> SplitSegments(int32_t steps, int32_t segments);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_SEGMENT_STEPS_H_
