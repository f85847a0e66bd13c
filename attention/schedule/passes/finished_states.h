#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_FINISHED_STATES_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_FINISHED_STATES_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// A running state (kPartial) that becomes an output in one step of a rank's schedule.
struct FinishedState {
  int32_t state = 0, out = 0;  // Buffers.
  int32_t step = 0;            // Of the finish.
};

// The states that nothing but tasks and one finish after them touch (no transfer, no other op),
// into an output of the same rows and heads that nothing else writes: what may be cut by rows, or
// finished in its tasks. In the order of their finishes.
std::vector<FinishedState> FinishedStates(const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_FINISHED_STATES_H_
