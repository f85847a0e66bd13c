#ifndef ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_BUILDERS_H_
#define ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_BUILDERS_H_

#include <cstdint>

#include "attention/schedule/model/group_view.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// A strategy is one of these: the schedule of one rank. Called only where there are at least two
// ranks and something to attend. A new one is a function here and a row in
// attention/schedule/schedule.cc. docs/explanation/strategies.md says what they cost.
//
// The same builders make the schedules of gradients. Step 0 makes deltas; what the forward pass
// does in step k is done in step k + 1. Gradients of what has travelled go home in fp32 in the step
// after they are made, where they are added to the owner's and rounded in the last step; those of
// keys in a ring travel behind the keys (KeyGradients) and go home from the last stop. Where keys
// stay, so do their gradients. What one rank of an exchange makes all of goes home rounded.
using ScheduleBuilder = RankSchedule (*)(const GroupView& group, int32_t rank);

// Tasks over own rows, no transfers.
RankSchedule BuildOneRank(const GroupView& group, int32_t rank);

// Exchanges of heads × rings of keys, by the degrees of the group. Ring pass-KV (no exchange) and
// Ulysses (no ring) are the ends of it.
//
// Step 0: the members of an exchange send one another the heads that each computes (HeadPartition),
// of queries and of keys. Then keys travel round the ring of the members of one number (Ring), used
// in the step after they arrive. Outputs are finished where they are computed and go home in the
// last step. A ring alone has neither the first of these steps nor the last.
RankSchedule BuildUlyssesRing(const GroupView& group, int32_t rank);

// Each rank receives exactly the key rows it sees and lacks, straight from their owners. Rotate:
// from the owner d ranks before it in step d − 1, used in step d. All-gather: all in step 0, used
// in step 1. Halo is all-gather by another name: a bounded mask makes the needs narrow.
RankSchedule BuildRotateKv(const GroupView& group, int32_t rank);
RankSchedule BuildAllGatherKv(const GroupView& group, int32_t rank);

// Queries travel round the ring, as keys do in ring pass-KV; a partial goes straight home in the
// step after it is computed, and merges there.
RankSchedule BuildRingPassQ(const GroupView& group, int32_t rank);

// Few queries over many resident keys: queries go straight to every rank whose keys they see, and
// the partials made there straight back, where they merge: three steps for any number of ranks.
RankSchedule BuildTree(const GroupView& group, int32_t rank);

// A ring of rings: keys go round an inner ring of neighbours while the blocks that the next inner
// ring starts with are on their way there.
RankSchedule BuildDoubleRing(const GroupView& group, int32_t rank);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_BUILDERS_H_
