#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_ROW_ENDS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_ROW_ENDS_H_

#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Returns the schedule with running states that begin and end in tasks (Task::begins, ends, out),
// instead of starting as the identity and being finished by an op. For kernels that write a row's
// output after its last sum (AttentionKernel::ends_rows). Rows, keys, order and bits stay the same.
//
// A kPartial is changed if
//
// - only tasks and one kFinish use it (FinishedStates),
// - its output may be written while tasks run: may_end[output buffer],
// - its tasks cover all its rows and heads, and their ranges of heads are equal or disjoint,
// - the rows that a task meets first, and those that it meets last, are each one run at most.
//
// Other states stay as they are.
RankSchedule WithRowEnds(const RankSchedule& schedule, const std::vector<bool>& may_end);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_ROW_ENDS_H_
