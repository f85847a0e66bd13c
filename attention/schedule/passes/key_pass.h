#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_KEY_PASS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_KEY_PASS_H_

#include <cstdint>

#include "attention/schedule/model/group_view.h"
#include "attention/schedule/model/needs.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// The gradients of keys by a pass of their own, added to the schedule of a rank that makes those of
// its queries: queries go straight to the ranks whose keys they see, and what comes of them stays
// there. No sums are sent or added, so that their order can be fixed, at the price of weights that
// are computed twice. `schedule` holds own queries (kQGrad) and keys as inputs, cut by heads as
// HeadPartition has it, no key/value head's queries in two; `queries`: needs of those that travel.
RankSchedule AddKeyPass(const GroupView& group, int32_t rank, const Needs& queries,
                        RankSchedule schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_KEY_PASS_H_
