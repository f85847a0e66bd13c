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

enum class Coverage : uint8_t { kEmpty, kPartial, kFull };

// The masks of one spec, ready to be asked. Rows are packed rows of the whole job: query rows
// 0 … spec.q_rows(), key rows 0 … spec.kv_rows(); a query sees keys of its own sequence only.
// The rule is semantics N8 (docs/reference/numerics.md, "Masks"). A bit mask is data, not part of a
// spec: what is said here holds before it, as an upper bound, and Classify never says kFull.
// Immutable after construction, safe to share between threads. Which mask a head follows:
// attention/mask/mask_groups.h.
class MaskMap {
 public:
  // `spec` must be valid; it is copied as far as needed.
  explicit MaskMap(const AttentionSpec& spec);

  // THE rule: keys (rows of sequence `sequence`, 0 … kv_len) that row `row` (0 … q_len) of it sees.
  // At most two intervals for every mask without a range list.
  Intervals Visible(int64_t sequence, int32_t q_head, int64_t row) const;

  // The same in packed rows.
  Intervals VisiblePacked(int32_t q_head, int64_t q_row) const;

  // The same of the packed query rows `q_rows`, in order: calls fn(rows, what they see) for rows in
  // which the intervals keep their number and their ends move steadily.
  void ForEachSweep(int32_t q_head, Interval q_rows,
                    absl::FunctionRef<void(Interval, const MovingIntervals&)> fn) const;

  // Packed key rows that at least one of the packed query rows `q_rows` sees: sorted, disjoint,
  // non-adjacent. As cheap as Area.
  std::vector<Interval> VisibleToAny(int32_t q_head, Interval q_rows) const;

  // Whether one of the packed query rows `q_rows` sees one of the packed key rows `keys`.
  bool SeesAny(int32_t q_head, Interval q_rows, Interval keys) const;

  // Visible (query, key) pairs of a rectangle of packed rows, for one query head. A few look-ups
  // for each sequence, chunk and piece of a range list (IntervalPieces), never O(area).
  int64_t Area(int32_t q_head, Interval q_rows, Interval k_rows) const;
  Coverage Classify(int32_t q_head, Interval q_rows, Interval k_rows) const;

  // Where a packed query row stands among the packed key rows: p of the rule, by the alignment of
  // the mask that the head follows. May lie outside its sequence's keys, and be negative.
  int64_t Position(int32_t q_head, int64_t q_row) const;

  // Whether the job's bit mask hides further keys from a head's rows of a sequence.
  bool HasBits(int32_t q_head, int64_t sequence) const {
    return masks_[MaskOf(sequence, q_head)].bit_mask;
  }

  // The sequence of a packed query row or key row, and where sequences begin (and the last ends).
  int64_t SequenceOfQuery(int64_t q_row) const;
  int64_t SequenceOfKey(int64_t k_row) const;
  int64_t QueryBegin(int64_t sequence) const { return q_begin_[sequence]; }
  int64_t KeyBegin(int64_t sequence) const { return k_begin_[sequence]; }

  // Query heads that see the same keys in every sequence form one class, wherever they stand.
  // Classes are numbered by their first heads.
  int32_t classes() const { return static_cast<int32_t>(groups_.first_of_class.size()); }
  int32_t ClassOf(int32_t q_head) const { return groups_.class_of_head[q_head]; }
  // A head that stands for a class.
  int32_t HeadOfClass(int32_t head_class) const { return groups_.first_of_class[head_class]; }
  // Calls fn(head, count) for each class among the heads [begin, end): one of them, and how many.
  void ForEachClass(int32_t begin, int32_t end, absl::FunctionRef<void(int32_t, int32_t)> fn) const;

  // Heads that tasks take together: whole key/value heads, so that queries of one group share its
  // keys, one after the other as long as the masks inside the group are the same. Where that makes
  // more than kMaxHeadRuns, all heads are one run: kernels tell heads apart by themselves.
  static constexpr int32_t kMaxHeadRuns = 16;
  struct HeadRun {
    int32_t begin = 0, end = 0;
    std::vector<int32_t> heads;  // One of each class.
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
  // Calls fn(sequence, rows of it) for each sequence that has some of `q_rows`, until it is false.
  void ForEachSequence(Interval q_rows, absl::FunctionRef<bool(int64_t, Interval)> fn) const;
  int64_t AreaInSequence(int64_t sequence, int32_t q_head, Interval q_rows, Interval k_rows) const;

  std::vector<int64_t> q_begin_, k_begin_;  // sequences + 1 entries
  std::vector<Mask> masks_;                 // Of the spec, then one full mask.
  MaskGroups groups_;
  // Of masks with ranges: (mask, q_len, kv_len).
  std::map<std::tuple<int32_t, int64_t, int64_t>, IntervalPieces> pieces_;
  std::vector<HeadRun> head_runs_;
  int32_t q_heads_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_MASK_H_
