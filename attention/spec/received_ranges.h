#ifndef ANNULUS_ATTENTION_SPEC_RECEIVED_RANGES_H_
#define ANNULUS_ATTENTION_SPEC_RECEIVED_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "attention/spec/interval.h"

namespace annulus {

// Rows [row_begin, row_end) × heads [head_begin, head_end).
struct CellRect {
  int64_t row_begin = 0, row_end = 0;
  int32_t head_begin = 0, head_end = 0;
};

// The cells (row, head) of a tensor that have arrived, as a union of rectangles. Neighbours with
// equal heads are joined, so rows that arrive in order take one entry. Not thread-safe.
class ReceivedRanges {
 public:
  // A hostile order of tiny rectangles stops at this limit, which bounds memory.
  static constexpr size_t kMaxFragments = 65536;

  ReceivedRanges(int64_t rows, int32_t heads, size_t max_fragments = kMaxFragments)
      : rows_(rows), heads_(heads), max_fragments_(max_fragments) {}

  // Adds the cells of `rect`, which must lie inside the tensor and must not be empty. Cells may
  // already be covered. INVALID_ARGUMENT / TOO_MANY_FRAGMENTS if there are max_fragments entries;
  // nothing changes then.
  absl::Status Add(const CellRect& rect);

  // True if a cell of `rect`, or the cell (row, head), is covered.
  bool Intersects(const CellRect& rect) const;
  bool Contains(int64_t row, int32_t head) const;
  // True if all cells are covered.
  bool complete() const { return cells_ == rows_ * heads_; }
  // The number of covered cells.
  int64_t cells() const { return cells_; }
  // The number of entries that store them.
  size_t fragments() const { return fragments_; }

  // Maximal runs of rows that lack a head, in order; at most `limit` runs.
  std::vector<Interval> MissingRows(size_t limit) const;

 private:
  struct HeadRange {
    int32_t begin, end;
    friend bool operator==(const HeadRange& a, const HeadRange& b) {
      return a.begin == b.begin && a.end == b.end;
    }
  };
  using Heads = std::vector<HeadRange>;  // Sorted, disjoint, not adjacent.
  struct Span {
    int64_t row_end;
    Heads heads;  // Not empty.
  };
  using Spans = std::map<int64_t, Span>;  // By first row; disjoint.

  static Heads Union(const Heads& heads, HeadRange added);
  static int64_t Count(const Heads& heads);
  static bool Overlaps(const Heads& heads, int32_t begin, int32_t end);
  // Splits the span that holds both row - 1 and row.
  void SplitAt(int64_t row);
  // Joins equal neighbours, from the span before `row_begin` to the one at `row_end`.
  void Join(int64_t row_begin, int64_t row_end);
  Spans::const_iterator SpanAtOrAfter(int64_t row) const;

  int64_t rows_;
  int32_t heads_;
  size_t max_fragments_;
  int64_t cells_ = 0;
  size_t fragments_ = 0;  // Head ranges of all spans.
  Spans spans_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_RECEIVED_RANGES_H_
