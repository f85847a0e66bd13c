#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_TASKS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_TASKS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

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

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_TASKS_H_
