#ifndef ANNULUS_ATTENTION_SCHEDULE_FIX_ORDER_H_
#define ANNULUS_ATTENTION_SCHEDULE_FIX_ORDER_H_

#include "attention/schedule_data.h"

namespace annulus {

// Whether what a strategy computes can be folded in one order for every number of ranks: keys
// travel and partials do not, so that each row's state meets all its keys at one place.
bool FoldsInOrder(Strategy strategy);

// Puts a rank's tasks into the order of their global keys, each as early as those before it allow:
// never past the last step of its accumulator's tasks, so what follows it stays right.
void FixOrder(const ShardPlan& plan, RankSchedule* schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_FIX_ORDER_H_
