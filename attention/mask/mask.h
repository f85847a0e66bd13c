#ifndef ANNULUS_ATTENTION_MASK_MASK_H_
#define ANNULUS_ATTENTION_MASK_MASK_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attention/mask/interval_pieces.h"
#include "attention/mask/mask_groups.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// The visible part of a rectangle of rows × keys: none, some or all of its pairs.
enum class Coverage : uint8_t { kEmpty, kPartial, kFull };

// The masks of one spec, compiled for queries. Rows are packed rows of the whole job: query rows 0
// … spec.q_rows(), key rows 0 … spec.kv_rows(). A query row sees only keys of its own sequence.
//
// The rule is in docs/reference/numerics.md, "Masks". attention/mask/mask_groups.h says which mask
// a head follows. A bit mask is input data, not part of the spec. The answers here ignore it, so
// they are upper bounds, and Classify never returns kFull where a bit mask applies.
//
// Immutable after construction, so threads may share it.
class MaskMap {
 public:
  // `spec` must be valid. It need not outlive the map.
  explicit MaskMap(const AttentionSpec& spec);

  // The rule itself, for one row: the keys (rows of sequence `sequence`, 0 … kv_len) that its query
  // row `row` (0 … q_len) sees. At most two intervals unless the mask has a range list.
  Intervals Visible(int64_t sequence, int32_t q_head, int64_t row) const;

  // Visible() in packed rows.
  Intervals VisiblePacked(int32_t q_head, int64_t q_row) const;

  // Visible keys of the packed query rows `q_rows`, in order. Calls fn(rows, visible keys in packed
  // rows) for runs of rows. In a run, the number of intervals is constant, and each end is fixed or
  // moves by one key per row.
  void ForEachSweep(int32_t q_head, Interval q_rows,
                    absl::FunctionRef<void(Interval, const MovingIntervals&)> fn) const;

  // The packed key rows that at least one of the packed query rows `q_rows` sees: sorted, disjoint,
  // non-adjacent. Costs as little as Area.
  std::vector<Interval> VisibleToAny(int32_t q_head, Interval q_rows) const;

  // True if one of the packed query rows `q_rows` sees one of the packed key rows `keys`.
  bool SeesAny(int32_t q_head, Interval q_rows, Interval keys) const;

  // The number of visible (query, key) pairs in a rectangle of packed rows, for one query head.
  // Costs a few look-ups for each sequence, chunk and piece of a range list (IntervalPieces), never
  // O(area).
  int64_t Area(int32_t q_head, Interval q_rows, Interval k_rows) const;
  // Area compared with the whole rectangle: none, some or all of its pairs are visible.
  Coverage Classify(int32_t q_head, Interval q_rows, Interval k_rows) const;

  // The position p of a packed query row among the packed key rows (docs/reference/numerics.md,
  // "Masks"), by the alignment of the mask that the head follows. It may lie outside the keys of
  // its sequence and may be negative.
  int64_t Position(int32_t q_head, int64_t q_row) const;

  // True if the job's bit mask applies to this head's rows of the sequence and may hide further
  // keys.
  bool HasBits(int32_t q_head, int64_t sequence) const {
    return masks_[MaskOf(sequence, q_head)].bit_mask;
  }

  // The sequence of a packed query row or key row. QueryBegin and KeyBegin give the first packed
  // row of a sequence; with `sequence` = sequences(), the end of the last one.
  int64_t SequenceOfQuery(int64_t q_row) const;
  int64_t SequenceOfKey(int64_t k_row) const;
  int64_t QueryBegin(int64_t sequence) const { return q_begin_[sequence]; }
  int64_t KeyBegin(int64_t sequence) const { return k_begin_[sequence]; }

  // Query heads that see the same keys in every sequence form one class; they need not be adjacent.
  // Classes are numbered in the order of their first heads.
  int32_t classes() const { return static_cast<int32_t>(groups_.first_of_class.size()); }
  int32_t ClassOf(int32_t q_head) const { return groups_.class_of_head[q_head]; }
  // The first head of a class. It stands for all heads of the class.
  int32_t HeadOfClass(int32_t head_class) const { return groups_.first_of_class[head_class]; }
  // Calls fn(head, count) for each class that has heads in [begin, end): its first head there, and
  // the number of its heads there.
  void ForEachClass(int32_t begin, int32_t end, absl::FunctionRef<void(int32_t, int32_t)> fn) const;

  // The heads that one task takes together. A run holds whole key/value heads, so that the query
  // heads of a GQA group share the keys. A run ends where the masks inside a group differ from
  // those of the group before. If there would be more than kMaxHeadRuns runs, all heads form one
  // run; kernels then separate heads by their masks.
  static constexpr int32_t kMaxHeadRuns = 16;
  struct HeadRun {
    int32_t begin = 0, end = 0;
    std::vector<int32_t> heads;  // The first head of each class in the run.
  };
  const std::vector<HeadRun>& head_runs() const { return head_runs_; }

  int64_t sequences() const { return static_cast<int64_t>(q_begin_.size()) - 1; }
  int32_t q_heads() const { return q_heads_; }

 private:
  int32_t MaskOf(int64_t sequence, int32_t q_head) const {
    return groups_.mask_of_head[groups_.of_sequence[sequence]][q_head];
  }
  // nullptr for a mask without ranges.
  const IntervalPieces* PiecesOf(int64_t sequence, int32_t mask) const;
  int64_t QueryRows(int64_t sequence) const { return q_begin_[sequence + 1] - q_begin_[sequence]; }
  int64_t KeyRows(int64_t sequence) const { return k_begin_[sequence + 1] - k_begin_[sequence]; }
  void MakePieces(const AttentionSpec& spec);
  void MakeHeadRuns(int32_t group);
  // Calls fn(sequence, its rows) for each sequence that has some of `q_rows`, until fn returns
  // false. The rows are rows of the sequence.
  void ForEachSequence(Interval q_rows, absl::FunctionRef<bool(int64_t, Interval)> fn) const;
  int64_t AreaInSequence(int64_t sequence, int32_t q_head, Interval q_rows, Interval k_rows) const;

  std::vector<int64_t> q_begin_, k_begin_;  // sequences + 1 entries
  std::vector<Mask> masks_;                 // The masks of the spec, then one full mask.
  MaskGroups groups_;
  // Pieces of masks with ranges, by (mask, q_len, kv_len).
  std::map<std::tuple<int32_t, int64_t, int64_t>, IntervalPieces> pieces_;
  std::vector<HeadRun> head_runs_;
  int32_t q_heads_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_MASK_H_
