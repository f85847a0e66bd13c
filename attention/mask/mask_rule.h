#ifndef ANNULUS_ATTENTION_MASK_MASK_RULE_H_
#define ANNULUS_ATTENTION_MASK_MASK_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// The rule of one mask for one sequence, in pieces that MaskMap and IntervalPieces put together.
// Rows are rows of the sequence. Everyone else asks MaskMap.

// Bounds the numbers of a valid mask above every row number and below where sums of a few overflow.
// The mask stays the same; the functions below take only masks that went through it.
void ClampFar(Mask* mask);

// A sequence that follows a mask. `shift` is what is added to a row to make its position.
struct MaskedSequence {
  MaskedSequence(const Mask& mask, int64_t q_len, int64_t kv_len);
  const Mask& mask;
  int64_t q_len, kv_len, shift;
};

// Keys that `row` sees, ranges aside: at most two intervals.
Intervals KeysOfRule(const MaskedSequence& of, int64_t row);
// Keys that some row of `rows` sees, ranges aside.
Intervals KeysOfRuleSwept(const MaskedSequence& of, Interval rows);
// Keys in some of the ranges, for `row`.
Intervals KeysOfRanges(absl::Span<const MaskRange> ranges, int64_t row);
Intervals IntersectAll(const Intervals& a, const Intervals& b);

// The longest beginning of `rows` that lies in one chunk.
Interval RowsOfChunk(const MaskedSequence& of, Interval rows);

// The longest beginning of `rows` whose visible pairs with `keys` are so many times those of its
// first `rows` alone, which Cuts can cut: a chunk, and those after it that have as much of `keys`
// as it has.
struct AlikeRows {
  Interval rows;
  int64_t times = 1;
};
AlikeRows RowsAlike(const MaskedSequence& of, Interval rows, Interval keys);

// Rows of one chunk, where `ranges` hold throughout, cut so that in each part, its first row aside,
// the intervals of a row keep their number and their ends stand still or move one key a row; both
// ends of `rows` included. `keys` are further ends that stand still.
std::vector<int64_t> Cuts(const MaskedSequence& of, absl::Span<const MaskRange> ranges,
                          Interval rows, Interval keys);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_MASK_RULE_H_
