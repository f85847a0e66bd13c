#ifndef ANNULUS_ATTENTION_MASK_H_
#define ANNULUS_ATTENTION_MASK_H_

#include <cstdint>
#include <vector>

#include "attention/interval.h"
#include "attention/spec.h"

namespace annulus {

enum class Coverage : uint8_t { kEmpty, kPartial, kFull };

// The masks of one spec, ready to be asked. Rows are packed rows of the whole job: query rows
// 0 … spec.q_rows(), key rows 0 … spec.kv_rows(); a query sees keys of its own sequence only.
// The rule is semantics N8 (docs/numerics.md, "Masks"). A bit mask is data, not part of a spec:
// what is said here holds before it, as an upper bound, and Classify never says kFull. Immutable
// after construction, safe to share between threads.
//
// AttentionSpec::masks is a run of groups. A group is one mask without query_heads, then the masks
// that name query_heads (the first group may lack the former). Sequence::mask is the index of the
// first mask of a group. A head follows the mask of the group that names it, else the one without
// query_heads, else sees every key of its sequence.
class MaskMap {
 public:
  // `spec` must be valid; it is copied as far as needed.
  explicit MaskMap(const AttentionSpec& spec);

  // THE rule: keys (rows of sequence `sequence`, 0 … kv_len) that row `row` (0 … q_len) of it sees.
  // At most two intervals for every mask without a range list.
  Intervals Visible(int64_t sequence, int32_t q_head, int64_t row) const;

  // The same in packed rows.
  Intervals VisiblePacked(int32_t q_head, int64_t q_row) const;

  // Packed key rows that at least one of the packed query rows `q_rows` sees: sorted, disjoint,
  // non-adjacent. As cheap as Area.
  std::vector<Interval> VisibleToAny(int32_t q_head, Interval q_rows) const;

  // Visible (query, key) pairs of a rectangle of packed rows, for one query head. A few look-ups
  // for each piece of the rows in which the same chunk and the same ranges hold, never O(area).
  int64_t Area(int32_t q_head, Interval q_rows, Interval k_rows) const;
  Coverage Classify(int32_t q_head, Interval q_rows, Interval k_rows) const;

  // Where a packed query row stands among the packed key rows: p of the rule, by the alignment of
  // the mask that the head follows. May lie outside its sequence's keys, and be negative.
  int64_t Position(int32_t q_head, int64_t q_row) const;

  // The sequence of a packed query row or key row, and where sequences begin.
  int64_t SequenceOfQuery(int64_t q_row) const;
  int64_t SequenceOfKey(int64_t k_row) const;
  int64_t QueryBegin(int64_t sequence) const { return q_begin_[sequence]; }
  int64_t KeyBegin(int64_t sequence) const { return k_begin_[sequence]; }

  // Query heads with equal masks form one class: heads [class_begin[i], class_begin[i+1]).
  // One class when no mask names heads.
  const std::vector<int32_t>& class_begin() const { return class_begin_; }
  int64_t sequences() const { return static_cast<int64_t>(q_begin_.size()) - 1; }
  int32_t q_heads() const { return q_heads_; }

 private:
  const Mask& MaskOf(int64_t sequence, int32_t q_head) const;
  void ReadGroups(const AttentionSpec& spec);
  void MakeClasses();
  void AddVisibleToAny(int64_t sequence, int32_t q_head, Interval q_rows,
                       std::vector<Interval>* keys) const;
  int64_t AreaInSequence(int64_t sequence, int32_t q_head, Interval q_rows, Interval k_rows) const;

  std::vector<int64_t> q_begin_, k_begin_;  // sequences + 1 entries
  std::vector<Mask> masks_;                 // Of the spec, then one full mask.
  std::vector<int32_t> group_of_sequence_;
  std::vector<std::vector<int32_t>> mask_of_head_;  // By group; indices of masks_.
  std::vector<int32_t> class_begin_;
  int32_t q_heads_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_H_
