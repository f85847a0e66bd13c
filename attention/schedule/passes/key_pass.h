#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_KEY_PASS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_KEY_PASS_H_

#include <cstdint>

#include "attention/schedule/model/group_view.h"
#include "attention/schedule/model/needs.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Adds a pass of its own for the gradients of keys to a rank's schedule for the gradients of
// queries. Queries travel directly to the ranks whose keys they see, and the sums stay there. No
// sums are sent or merged, so their order can be fixed. The price: weights are computed twice.
//
// Requires: `schedule` has own queries (kQGrad) and keys as inputs, split by heads as HeadPartition
// says, and no split separates query heads that share a key/value head. `queries` are the needs of
// ranks for travelling queries.
RankSchedule AddKeyPass(const GroupView& group, int32_t rank, const Needs& queries,
                        RankSchedule schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_KEY_PASS_H_
