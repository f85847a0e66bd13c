#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_TASKS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_TASKS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Deals one step's tasks in order over `parts` lists of about equal visible pairs. Tasks are cut by
// query rows where a part ends, and long ones into squares before, so that no part has neither many
// keys for few rows nor the reverse; what no row sees is left out, and what all rows see is marked.
// An accumulator row sees its keys in the same order as before. Tasks that add to gradients of keys
// are cut at multiples of the plan's granule: what a key gets of one granule is one sum. `schedule`
// and `request` are those of the tasks.
std::vector<std::vector<Task>> SplitTasks(const std::vector<Task>& tasks, int64_t parts,
                                          const RankSchedule& schedule,
                                          const ScheduleRequest& request);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_TASKS_H_
