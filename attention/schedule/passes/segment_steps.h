#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_SEGMENT_STEPS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_SEGMENT_STEPS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Cuts the steps of a job so that its ranks can stop in time.
//
// A segment is a run of steps that one command runs. Ranks can stop only between segments: to
// cancel a job, or to run a more urgent one (server/coordinator/segment_scheduler.h). A step of a
// long job may take longer than a segment should, so long steps are first cut into parts:
//
// 1. The coordinator computes costs[rank][step] of all ranks, as visible pairs (StepCosts) or as
//    time (StepSeconds in attention/planning/cost_model.h).
// 2. StepParts turns them into parts_of_step: the number of parts of each step. It is the same for
//    all ranks, because both ends of a transfer must cut it alike. It is a part of the plan.
// 3. SplitSteps applies parts_of_step to the schedule of one rank. Step k becomes parts_of_step[k]
//    steps. SplitTasks deals the tasks over them, each transfer is cut into pieces of rows, and the
//    ops stay in the last part. It also cuts buffers, which saves memory
//    (attention/schedule/passes/split_buffers.h).
// 4. SplitSegments groups the resulting steps into segments.
//
// Example: the largest costs of two steps are 10 and 3, and max_step_cost is 4. StepParts gives {3,
// 1}. SplitSteps makes four steps, the first three from step 0. SplitSegments(4, 2) gives the
// segments [0, 2) and [2, 4).

// Steps [step_begin, step_end) of a schedule that ranks run between two chances to stop.
struct Segment {
  int32_t step_begin = 0;
  int32_t step_end = 0;
};

// Cuts the steps of one rank's schedule into parts. parts_of_step[k] >= 1 is the number of parts of
// step k, the same on all ranks (StepParts). Tasks are dealt over the parts of their step
// (SplitTasks). Transfers are cut into pieces of rows over the same parts; in a deterministic job,
// over the first eighth of the parts. `request` must be that of the schedule. Pure.
RankSchedule SplitSteps(const RankSchedule& schedule, const ScheduleRequest& request,
                        const std::vector<int32_t>& parts_of_step);

// Deals one step's tasks in order over `parts` lists with about equal numbers of visible pairs. A
// task is cut by query rows where a part ends. Long tasks are first cut into squares, so that no
// part has many keys for few rows, or the reverse. Squares that no row sees are dropped, and
// squares that all rows see become kFull. An accumulator row sees its keys in the same order as
// before.
//
// Tasks that add to gradients of keys are cut at multiples of the plan's granule, because a key's
// gradient of one granule is one sum. `schedule` and `request` must be those of the tasks.
std::vector<std::vector<Task>> SplitTasks(const std::vector<Task>& tasks, int64_t parts,
                                          const RankSchedule& schedule,
                                          const ScheduleRequest& request);

// The number of parts of each step, from 1 to 4,096, such that no rank's part costs more than about
// `max_step_cost`. The unit of `costs`, indexed [rank][step], is arbitrary: visible pairs or time,
// for example. Pure, so all ranks get the same result.
std::vector<int32_t> StepParts(const std::vector<std::vector<int64_t>>& costs,
                               int64_t max_step_cost);

// The longest time that a rank spends in one step, in the unit of `costs` (indexed [rank][step]).
// It is the cost of the step and the wait for peers that reach the step later, if the step has
// transfers with them. `ranks` are the schedules of a group.
int64_t LongestStep(const std::vector<RankSchedule>& ranks,
                    const std::vector<std::vector<int64_t>>& costs);

// The cost of each step's tasks in visible pairs × query heads. Gradients of only one side count by
// their share of the five products.
std::vector<int64_t> StepCosts(const RankSchedule& schedule, const ScheduleRequest& request);

// Cuts the steps of a schedule into at most `segments` runs of nearly equal numbers of steps. At
// least one; fewer than `segments` if there are fewer steps.
std::vector<Segment> SplitSegments(int32_t steps, int32_t segments);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_SEGMENT_STEPS_H_
