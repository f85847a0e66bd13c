#ifndef ANNULUS_WORKER_KERNEL_VISIBILITY_H_
#define ANNULUS_WORKER_KERNEL_VISIBILITY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask.h"
#include "attention/task_rows.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/compute_pool.h"

namespace annulus {

// The visible keys of every query row of every task of a call, in shard-local key rows, clipped to
// the task's keys. Tasks with full coverage cost nothing. Immutable after construction; safe to
// share between threads.
class CallVisibility {
 public:
  // Asks the mask on `pool`'s threads. Mask and tasks must outlive this.
  CallVisibility(const MaskMap& mask, absl::Span<const KernelTask> tasks, ComputePool& pool);

  // Intervals that query head `q_head` of shard-local query row `row` sees in task `task`: sorted,
  // disjoint.
  absl::Span<const Interval> Of(int32_t task, int32_t q_head, int64_t row) const {
    const Entry& entry = entries_[task];
    if (entry.by_class.empty()) return absl::MakeConstSpan(&entry.all, 1);
    const int64_t of_task = row - entry.q_begin, i = of_task % kPieceRows;
    const TaskRows& rows =
        entry.by_class[entry.slot_of_class[mask_.ClassOf(q_head)] * entry.pieces +
                       of_task / kPieceRows];
    return absl::MakeConstSpan(rows.spans)
        .subspan(rows.first[i], rows.first[i + 1] - rows.first[i]);
  }

  // Whether that is the same for all rows and heads of the task.
  bool SameForAll(int32_t task) const { return entries_[task].by_class.empty(); }

  // The same of the rows from `row` on, one after the other without a mark between, up to `end` or
  // fewer; `row` becomes the next one.
  absl::Span<const Interval> OfNext(int32_t task, int32_t q_head, int64_t end, int64_t* row) const {
    const Entry& entry = entries_[task];
    if (entry.by_class.empty()) {
      ++*row;
      return absl::MakeConstSpan(&entry.all, 1);
    }
    const int64_t of_task = *row - entry.q_begin, i = of_task % kPieceRows;
    const int64_t count = std::min(kPieceRows - i, end - *row);
    const TaskRows& rows =
        entry.by_class[entry.slot_of_class[mask_.ClassOf(q_head)] * entry.pieces +
                       of_task / kPieceRows];
    *row += count;
    return absl::MakeConstSpan(rows.spans)
        .subspan(rows.first[i], rows.first[i + count] - rows.first[i]);
  }

  // Heads of one class see the same keys in every row.
  const MaskMap& mask() const { return mask_; }

 private:
  struct Entry {
    Interval all;  // The task's keys, which every row sees where by_class is empty.
    int64_t q_begin = 0;
    std::vector<int16_t> slot_of_class;
    int64_t pieces = 0;
    std::vector<TaskRows> by_class;  // Of the task's heads, each in pieces of rows.
  };
  // Rows that one thread asks for at once.
  static constexpr int64_t kPieceRows = 4096;
  const MaskMap& mask_;
  std::vector<Entry> entries_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_VISIBILITY_H_
