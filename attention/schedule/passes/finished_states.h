#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_FINISHED_STATES_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_FINISHED_STATES_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// A running state (kPartial) that is finished into an output in one step of a rank's schedule.
struct FinishedState {
  int32_t state = 0, out = 0;  // Buffer numbers.
  int32_t step = 0;            // The step of the finish.
};

// The states that may be cut by rows, or finished in their tasks. Such a state is used by tasks and
// then by one kFinish only: no transfer and no other op. Its output has the same rows and heads,
// and nothing else writes it. In the order of their finishes.
std::vector<FinishedState> FinishedStates(const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_FINISHED_STATES_H_
