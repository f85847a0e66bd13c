#ifndef ANNULUS_WORKER_KERNEL_VISIBILITY_H_
#define ANNULUS_WORKER_KERNEL_VISIBILITY_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "attention/sharding/task_rows.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/call_pieces.h"
#include "worker/kernel/compute_pool.h"

namespace annulus {

// The visible keys of every query row of every task of a call, in shard-local key rows, clipped to
// the task's keys. Tasks with full coverage take no time and no memory. Immutable after
// construction; threads may share it.
class CallVisibility {
 public:
  // Queries the mask on `pool`'s threads. `mask` and `tasks` must outlive this.
  CallVisibility(const MaskMap& mask, absl::Span<const KernelTask> tasks, ComputePool& pool);

  // The intervals that query head `q_head` of shard-local query row `row` sees in task `task`:
  // sorted, disjoint.
  absl::Span<const Interval> Of(int32_t task, int32_t q_head, int64_t row) const {
    return OfNext(task, q_head, row + 1, &row);
  }

  // True if all rows and heads of the task see the same keys: all of the task's.
  bool SameForAll(int32_t task) const { return pieces_.SeesAll(task); }

  // The intervals of the rows from `row` on, up to `end` or fewer, one row after the other with no
  // mark between rows. Sets `row` to the next row to ask for.
  absl::Span<const Interval> OfNext(int32_t task, int32_t q_head, int64_t end, int64_t* row) const {
    if (pieces_.SeesAll(task)) {
      ++*row;
      return absl::MakeConstSpan(&pieces_.KeysOf(task), 1);
    }
    const auto [rows, i] = pieces_.Find(task, q_head, *row);
    const int64_t count = std::min(Pieces::kRows - i, end - *row);
    *row += count;
    return absl::MakeConstSpan(rows.spans)
        .subspan(rows.first[i], rows.first[i + count] - rows.first[i]);
  }

  // All heads of a mask class see the same keys in every row.
  const MaskMap& mask() const { return pieces_.mask(); }

 private:
  using Pieces = CallPieces<TaskRows>;
  Pieces pieces_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_VISIBILITY_H_
