#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_FIX_ORDER_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_FIX_ORDER_H_

#include <cstdint>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// True if a strategy keeps each sum of a deterministic job on one rank. The sums are over parts of
// a row's keys, and over a key's queries and their heads. Then FixOrder can give the tasks the same
// order under all plans. True for jobs that are not deterministic.
bool FoldsInOrder(const AttentionSpec& spec, Strategy strategy, int32_t ulysses_degree);

// The number of tasks that FixOrder makes of a rank's tasks, without making them.
int64_t CountInOrder(const ScheduleRequest& request, const RankSchedule& schedule);

// Sorts a rank's tasks by their global keys. Each goes into the earliest step in which its keys are
// present and all tasks before it are done. Transfers stay where they are.
//
// Tasks that add to gradients of keys are sorted by global queries instead, in tiles of the plan's
// granule. They are cut where queries are not adjacent in the job. If masks differ between heads,
// or a task adds to gradients of queries too, they are cut tile by tile.
void FixOrder(const ScheduleRequest& request, RankSchedule* schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_FIX_ORDER_H_
