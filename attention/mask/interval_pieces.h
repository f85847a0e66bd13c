#ifndef ANNULUS_ATTENTION_MASK_INTERVAL_PIECES_H_
#define ANNULUS_ATTENTION_MASK_INTERVAL_PIECES_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// A range list, cut at every row where a range begins or ends: rows of a strip share their ranges.
// Made once for a mask.
class RangeBands {
 public:
  explicit RangeBands(const std::vector<MaskRange>& ranges);

  // How many strips have rows of 0 … q_len. They are in order, the first begins at row 0, and the
  // last of all has no end and no ranges.
  int64_t strips(int64_t q_len) const;
  // Its rows of 0 … q_len.
  Interval RowsOf(int64_t strip, int64_t q_len) const;
  // Its ranges, of the list that the strips were made from.
  std::vector<MaskRange> RangesOf(int64_t strip, const std::vector<MaskRange>& list) const;

 private:
  struct RowBlock {
    int64_t begin = 0;
    int64_t first = 0;  // Of its numbers in open_.
  };
  std::vector<RowBlock> strips_;
  std::vector<int32_t> open_;  // Numbers of ranges, strip by strip.
};

struct MaskedSequence;

// The rows of one sequence under a mask with ranges, cut into pieces in which the intervals of keys
// that a row sees keep their number, and their ends stand still or move one key a row. Questions
// cost a look-up and a few operations for each piece that they touch. Immutable.
class IntervalPieces {
 public:
  IntervalPieces(const Mask& mask, const RangeBands& strips, int64_t q_len, int64_t kv_len);

  // Of one row, in order.
  Intervals KeysOf(int64_t row) const;
  // Calls fn(rows, what they see) for pieces of `rows`, in order. fn may change what it is given.
  void ForEachSweep(Interval rows, absl::FunctionRef<void(Interval, MovingIntervals&)> fn) const;
  // Appends keys that some row of `rows` sees, as intervals in any order.
  void AddVisible(Interval rows, std::vector<Interval>* keys) const;
  bool SeesAny(Interval rows, Interval keys) const;
  // Visible pairs of rows × keys.
  int64_t Area(Interval rows, Interval keys) const;

  int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }

 private:
  struct Piece {
    int64_t begin = 0;
    int32_t first_sweep = 0;
  };
  // A piece's part of some rows: `skip` rows after the piece's first, `rows` of them.
  struct Part {
    absl::Span<const Sweep> sweeps;  // Of the piece's first row.
    int64_t skip = 0, rows = 0;
  };

  // Pieces that are asked about together: what rows of all of them see is worked out once.
  static constexpr int64_t kBlock = 32;

  void AddRows(const MaskedSequence& of, absl::Span<const MaskRange> ranges, Interval rows);
  void AddPiece(int64_t begin, const Intervals& first, const Intervals& last, int64_t rows);
  void JoinBlocks();
  Part PartOf(int64_t piece, Interval rows) const;
  int64_t PieceOf(int64_t row) const;
  int64_t EndOf(int64_t piece) const {
    return piece + 1 < pieces() ? pieces_[piece + 1].begin : q_len_;
  }
  template <typename Fn>
  void ForEachPart(Interval rows, Fn fn) const;  // Until fn says false.
  // Until fn(keys) says false: what rows of parts and of whole blocks see.
  template <typename Fn>
  void ForEachVisible(Interval rows, Fn fn) const;

  int64_t q_len_;
  std::vector<Piece> pieces_;
  std::vector<Sweep> sweeps_;
  std::vector<std::vector<Interval>> seen_;  // By block of pieces, as a set.
};

// How many parts the rows of a sequence are cut into at most, before those that go on straight are
// joined: what making IntervalPieces costs. Counts no further than a little past `limit`.
int64_t CountCuts(const Mask& mask, const RangeBands& strips, int64_t q_len, int64_t kv_len,
                  int64_t limit);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_INTERVAL_PIECES_H_
