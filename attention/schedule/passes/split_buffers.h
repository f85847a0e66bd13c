#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_BUFFERS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_BUFFERS_H_

#include <cstdint>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Both cut buffers of one rank's schedule of a forward pass by rows, so that less memory is in use
// at a time, into few pieces and only where that saves half of the buffer. Sends and receives name
// the same regions as before. Pure functions; `least_rows` > 0.

// A rank's own keys, apart from those of them that are sent: what nobody else touches can stay
// where it has arrived (BuffersInStaging), at least `least_rows` in all. `request` is what the
// schedule was made from.
RankSchedule SplitSentKeys(const RankSchedule& schedule, const ScheduleRequest& request,
                           int64_t least_rows);

// The running state of rows and their output: rows that have met all their keys are finished, and
// their state is gone, while others have not begun. Where steps are parts that go from row to row,
// as with a window, states of few parts are alive together. Pieces have at least `least_rows`.
RankSchedule SplitStates(const RankSchedule& schedule, int64_t least_rows);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_SPLIT_BUFFERS_H_
