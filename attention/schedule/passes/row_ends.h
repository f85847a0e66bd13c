#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_ROW_ENDS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_ROW_ENDS_H_

#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// The schedule with rows of running states that begin and end in tasks (Task::begins, ends, out),
// instead of with the identity before and a finish after them: for kernels that write a row's
// output where they have made its last sums (AttentionKernel::ends_rows). Same rows, keys, order
// and bits.
//
// It is done for a kPartial that nothing else touches: no transfer, and no op but one finish, into
// an output of the same rows and heads that may be written while tasks run (`may_end`, by buffer);
// whose tasks cover all its rows and heads, by heads that are the same or have none in common; and
// where each task has first and last to do with one run of rows at most. Others stay as they are.
RankSchedule WithRowEnds(const RankSchedule& schedule, const std::vector<bool>& may_end);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_ROW_ENDS_H_
