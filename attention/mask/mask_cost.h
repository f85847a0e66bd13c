#ifndef ANNULUS_ATTENTION_MASK_MASK_COST_H_
#define ANNULUS_ATTENTION_MASK_MASK_COST_H_

#include <cstdint>

#include "attention/mask/mask_groups.h"
#include "attention/spec/spec.h"

namespace annulus {

// The planning cost of a spec's masks, apart from its rows and ranks. Validate() bounds it.
// Requires: each mask is valid by itself and names existing heads, lengths are at least 0, and
// `groups` was made from the same spec.

// The number of parts into which range lists cut the rows of all sequences
// (attention/mask/interval_pieces.h). Each mask with ranges counts once per sequence in which some
// head follows it, and as at least one part. Planning visits the parts one by one. Stops counting a
// little above `most`; takes time linear in `most` and in the number of ranges.
int64_t CountRangeCuts(const AttentionSpec& spec, const MaskGroups& groups, int64_t most);

// Above the length of any sequence, and small enough that sums of a few do not overflow.
inline constexpr int64_t kMostRows = int64_t{1} << 60;
// The span of a mask: the number of consecutive keys that a row sees around its position, for a
// sequence of any length. kMostRows or more if the mask bounds the keys on at most one side.
int64_t SpanOf(const Mask& mask);
// The number of spans that `q_len` rows of a sequence fill; 0 if one span holds all rows.
int64_t SpansOf(const Mask& mask, int64_t q_len);

// The upper limit of StripedMeetings. It keeps the time to plan a job at seconds.
inline constexpr int64_t kMaxStripedMeetings = int64_t{1} << 20;

// The upper limit of sequences × ranks under the layout zigzag-per-sequence. Each shard of such a
// plan has two ranges in each sequence, and the plan travels as one message.
inline constexpr int64_t kMaxSequenceCuts = 8192;

// The number of rank pairs that a striped plan considers, with stripes of `stripe` rows on
// `world_size` ranks. For each sequence and class of heads it counts
//
// - the pairs of a rank with queries and a rank with keys of the sequence,
// - times the number of spans (SpansOf) that the sequence has for the class, at least 1.
//
// Planning treats each one separately. 0 on one rank, which needs nothing from others. Stops
// counting a little above kMaxStripedMeetings.
int64_t StripedMeetings(const AttentionSpec& spec, const MaskGroups& groups, int64_t stripe,
                        int32_t world_size);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_MASK_COST_H_
