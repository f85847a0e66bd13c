#ifndef ANNULUS_ATTENTION_MASK_MASK_RULE_H_
#define ANNULUS_ATTENTION_MASK_MASK_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// The rule of one mask for one sequence (docs/reference/numerics.md, "Masks"). Rows are rows of the
// sequence. Only MaskMap and IntervalPieces use these functions; all other code uses MaskMap.

// Lowers the numbers of a valid mask to at most 2^60, which changes no mask: it is above every row
// number. Sums of a few such numbers do not overflow. The functions below require it.
void ClampFar(Mask* mask);

// A sequence and the mask it follows. `shift` is added to a query row to get its position p. Keeps
// a reference to `mask`.
struct MaskedSequence {
  MaskedSequence(const Mask& mask, int64_t q_len, int64_t kv_len);
  const Mask& mask;
  int64_t q_len, kv_len, shift;
};

// The keys that `row` sees without regard to ranges: at most two intervals.
Intervals KeysOfRule(const MaskedSequence& of, int64_t row);
// The keys that at least one row of `rows` sees, without regard to ranges.
Intervals KeysOfRuleSwept(const MaskedSequence& of, Interval rows);
// The keys of the ranges that hold `row`.
Intervals KeysOfRanges(absl::Span<const MaskRange> ranges, int64_t row);
// The keys in both sets.
Intervals IntersectAll(const Intervals& a, const Intervals& b);

// The longest prefix of `rows` that lies in one chunk; all of `rows` if the mask has no chunk.
Interval RowsOfChunk(const MaskedSequence& of, Interval rows);

// Counts visible pairs of a mask with chunks without visiting each chunk. `rows` is a prefix of the
// rows given, which Cuts can cut. `times` is the number of whole chunks, from rows.begin on, that
// have as many visible pairs with `keys` as the first one. MaskMap::Area counts `rows` once and
// multiplies by `times`.
//
// `times` is above 1 only if `rows` is one whole chunk.
struct AlikeRows {
  Interval rows;
  int64_t times = 1;
};
AlikeRows RowsAlike(const MaskedSequence& of, Interval rows, Interval keys);

// Cuts `rows` for counting. Returns row numbers in increasing order, including both ends of `rows`.
// In each part, all rows but the first see the same number of intervals. Each end of these is fixed
// or moves by one key per row.
//
// Requires: `rows` lie in one chunk, and `ranges` are the ranges of each of them. The ends of
// `keys` count as further fixed ends.
std::vector<int64_t> Cuts(const MaskedSequence& of, absl::Span<const MaskRange> ranges,
                          Interval rows, Interval keys);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_MASK_RULE_H_
