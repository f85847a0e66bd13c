#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_FIX_ORDER_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_FIX_ORDER_H_

#include <cstdint>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Whether a job that is to be deterministic is so by a strategy: whether its tasks can be put into
// one order for all plans, as sums over parts of a row's keys, or of a key's queries and their
// heads, stay where they are. True for other jobs.
bool FoldsInOrder(const AttentionSpec& spec, Strategy strategy, int32_t ulysses_degree);

// How many tasks FixOrder makes of those of a rank, without making them.
int64_t CountInOrder(const ScheduleRequest& request, const RankSchedule& schedule);

// Puts a rank's tasks into the order of their global keys, each into the earliest step that has its
// keys and in which everything before it has been done. Transfers stay. Tasks that add to gradients
// of keys are in the order of their global queries instead, by tiles of the plan's granule, and are
// cut where queries do not lie side by side in the job, or tile by tile.
void FixOrder(const ScheduleRequest& request, RankSchedule* schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_FIX_ORDER_H_
