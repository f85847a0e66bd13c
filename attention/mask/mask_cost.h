#ifndef ANNULUS_ATTENTION_MASK_MASK_COST_H_
#define ANNULUS_ATTENTION_MASK_MASK_COST_H_

#include <cstdint>

#include "attention/mask/mask_groups.h"
#include "attention/spec/spec.h"

namespace annulus {

// What planning the masks of a spec costs, beside its rows and ranks. Masks are valid one by one
// and name heads that exist; lengths are at least 0; `groups` are those of the spec.

// Parts that range lists cut the rows of all sequences into (attention/mask/interval_pieces.h), for
// each mask that some head follows there; at least one. What is planned goes through them one by
// one. Counts no further than a little past `most`, in time that is linear in it and in the ranges.
int64_t CountRangeCuts(const AttentionSpec& spec, const MaskGroups& groups, int64_t most);

// More than any sequence has; sums of a few stay in range.
inline constexpr int64_t kMostRows = int64_t{1} << 60;
// Keys that a row sees around itself, however long the sequence: kMostRows or more where all of
// them, or all on one side.
int64_t SpanOf(const Mask& mask);
// Such spans that `q_len` rows of a sequence have side by side; 0 where one holds all rows.
int64_t SpansOf(const Mask& mask, int64_t q_len);

// The most that StripedMeetings may be, so that a plan takes seconds at most.
inline constexpr int64_t kMaxStripedMeetings = int64_t{1} << 20;

// The most sequences × ranks under the layout zigzag-per-sequence: the plan, in which each shard
// has two ranges of each sequence, travels as one message.
inline constexpr int64_t kMaxSequenceCuts = 8192;

// Under the striped layout, with stripes of `stripe` rows on `world_size` ranks: pairs of ranks of
// which one has queries and the other one keys of a sequence, of all sequences and classes of heads
// together, as often as the sequence has spans for the class. Each is planned for itself. 0 on one
// rank, which needs nothing of others. Counts no further than a little past kMaxStripedMeetings.
int64_t StripedMeetings(const AttentionSpec& spec, const MaskGroups& groups, int64_t stripe,
                        int32_t world_size);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_MASK_COST_H_
