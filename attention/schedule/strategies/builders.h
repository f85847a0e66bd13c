#ifndef ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_BUILDERS_H_
#define ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_BUILDERS_H_

#include <cstdint>

#include "attention/schedule/model/group_view.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// The builders: one function per strategy, which writes the schedule of one rank. Called only if
// there are at least two ranks (except BuildOneRank) and some row sees a key. To add one, follow
// CONTRIBUTING.md, "Checklist: a new strategy". docs/explanation/strategies.md gives the rule, a
// picture and the costs of each.
//
// The same builders make the schedules of gradients. Step 0 computes deltas; the transfers and
// tasks of a forward pass's step k are in step k + 1. Gradients of rows that have travelled go home
// in fp32 in the step after they are computed. The owner adds them to its own and rounds the sum in
// the last step. The exceptions are:
//
// - Gradients of keys in a ring follow the keys (KeyGradients) and go home from the last stop.
// - If keys stay, so do their gradients.
// - If one rank of an exchange computes a gradient completely, the gradient goes home rounded.
using ScheduleBuilder = RankSchedule (*)(const GroupView& group, int32_t rank);

// Tasks over own rows, without transfers.
RankSchedule BuildOneRank(const GroupView& group, int32_t rank);

// Exchanges of heads × rings of keys, by the degrees of the group. ring-pass-kv has no exchange
// (degree 1); ulysses has no ring (degree 1).
//
// Step 0: the members of an exchange send one another the heads of queries and keys that each
// computes (HeadPartition). Then keys travel round the ring of the members with the same number
// (Ring), and are used in the step after they arrive. Outputs are finished where they are computed
// and go home in the last step. Without an exchange, the first and the last of these steps are
// missing.
RankSchedule BuildUlyssesRing(const GroupView& group, int32_t rank);

// Each rank receives exactly the key rows that it sees and does not own, directly from their
// owners. Rotate: from the owner d ranks before it in step d − 1, used in step d. All-gather: all
// in step 0, used in step 1. Halo is all-gather under another name: a bounded mask makes the needs
// narrow.
RankSchedule BuildRotateKv(const GroupView& group, int32_t rank);
RankSchedule BuildAllGatherKv(const GroupView& group, int32_t rank);

// Queries travel round the ring, as keys do in ring-pass-kv. A partial goes directly home in the
// step after it is computed and merges there.
RankSchedule BuildRingPassQ(const GroupView& group, int32_t rank);

// For few queries over many resident keys. Queries go directly to every rank whose keys they see.
// The partials made there go directly back and merge: three steps for any number of ranks.
RankSchedule BuildTree(const GroupView& group, int32_t rank);

// A ring of rings: keys travel round an inner ring of neighbours, while the blocks for the next
// inner ring are on their way there.
RankSchedule BuildDoubleRing(const GroupView& group, int32_t rank);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_BUILDERS_H_
