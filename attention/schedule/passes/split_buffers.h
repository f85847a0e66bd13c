#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_BUFFERS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_BUFFERS_H_

#include <cstdint>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Cuts buffers of one rank's forward schedule by rows, so that less memory is in use at a time. A
// buffer is cut into few pieces, and only if that saves half of it. Sends and receives name the
// same regions as before. Pure. Requires: least_rows > 0.

// Cuts the rank's own keys into the rows that are sent and the rest. The rest is not touched by
// transfers, so it can stay in staging (BuffersInStaging); it has at least `least_rows` rows.
// `request` must be that of the schedule.
RankSchedule SplitSentKeys(const RankSchedule& schedule, const ScheduleRequest& request,
                           int64_t least_rows);

// Cuts running states and their outputs. Rows that have met all their keys are finished and their
// state is freed, before the state of others begins. If the parts of a step go from row to row, as
// with a window, few states are alive at the same time. A piece has at least `least_rows` rows.
RankSchedule SplitStates(const RankSchedule& schedule, int64_t least_rows);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_BUFFERS_H_
