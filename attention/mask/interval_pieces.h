#ifndef ANNULUS_ATTENTION_MASK_INTERVAL_PIECES_H_
#define ANNULUS_ATTENTION_MASK_INTERVAL_PIECES_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// A range list, cut into bands at every query row where a range begins or ends. All rows of a
// band lie in the same ranges. Depends on the mask alone; make it once per mask. Immutable.
class RangeBands {
 public:
  explicit RangeBands(const std::vector<MaskRange>& ranges);

  // The number of bands that have rows in [0, q_len). Bands are in row order. Band 0 begins at
  // row 0. The last band of the list has no end and no ranges.
  int64_t bands(int64_t q_len) const;
  // The rows of `band`, clipped to [0, q_len).
  Interval RowsOf(int64_t band, int64_t q_len) const;
  // The ranges of `band`. `list` must be the list given to the constructor.
  std::vector<MaskRange> RangesOf(int64_t band, const std::vector<MaskRange>& list) const;

 private:
  struct Band {
    int64_t begin = 0;
    int64_t first = 0;  // Index of the first range number in open_.
  };
  std::vector<Band> bands_;
  std::vector<int32_t> open_;  // Range numbers, band by band.
};

struct MaskedSequence;

// The visible keys of one sequence under a mask with ranges, stored as pieces of query rows. In a
// piece, each row sees the same number of key intervals, and each end of an interval is fixed or
// moves by one key per row.
//
// Rows are rows of the sequence: query rows in [0, q_len), key rows in [0, kv_len). A query costs
// one look-up plus a few operations for each piece that it touches. Immutable, so threads may share
// it. Rule: docs/reference/numerics.md, "Masks".
class IntervalPieces {
 public:
  IntervalPieces(const Mask& mask, const RangeBands& bands, int64_t q_len, int64_t kv_len);

  // The keys that `row` sees, in order.
  Intervals KeysOf(int64_t row) const;
  // Calls fn(part, keys visible to `part`) for each piece that has some of `rows`, in order. fn may
  // modify its second argument.
  void ForEachSweep(Interval rows, absl::FunctionRef<void(Interval, MovingIntervals&)> fn) const;
  // Appends the keys that at least one row of `rows` sees. The intervals are in any order and may
  // overlap.
  void AddVisible(Interval rows, std::vector<Interval>* keys) const;
  bool SeesAny(Interval rows, Interval keys) const;
  // The number of visible (query, key) pairs in rows × keys.
  int64_t Area(Interval rows, Interval keys) const;

  int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }

 private:
  struct Piece {
    int64_t begin = 0;
    int32_t first_sweep = 0;
  };
  // The part of a piece that lies in some given rows. It begins `skip` rows after the first row of
  // the piece and has `rows` rows.
  struct Part {
    absl::Span<const Sweep> sweeps;  // The intervals of the piece's first row.
    int64_t skip = 0, rows = 0;
  };

  // The number of pieces in a block. The keys visible to a whole block are computed once.
  static constexpr int64_t kBlock = 32;

  void AddRows(const MaskedSequence& of, absl::Span<const MaskRange> ranges, Interval rows);
  void AddPiece(int64_t begin, const Intervals& first, const Intervals& last, int64_t rows);
  void JoinBlocks();
  Part PartOf(int64_t piece, Interval rows) const;
  int64_t PieceOf(int64_t row) const;
  int64_t EndOf(int64_t piece) const {
    return piece + 1 < pieces() ? pieces_[piece + 1].begin : q_len_;
  }
  // Calls fn(part) in row order until it returns false.
  template <typename Fn>
  void ForEachPart(Interval rows, Fn fn) const;
  // Calls fn(keys) for the keys that each part, or each whole block, sees, until fn returns false.
  template <typename Fn>
  void ForEachVisible(Interval rows, Fn fn) const;

  int64_t q_len_;
  std::vector<Piece> pieces_;
  std::vector<Sweep> sweeps_;
  // For each block of pieces: the keys it sees, sorted and disjoint.
  std::vector<std::vector<Interval>> seen_;
};

// An upper bound on the number of pieces of a sequence, before neighbours that continue each other
// are joined. It is the cost of constructing IntervalPieces. Stops counting a little above `limit`.
int64_t CountCuts(const Mask& mask, const RangeBands& bands, int64_t q_len, int64_t kv_len,
                  int64_t limit);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_INTERVAL_PIECES_H_
