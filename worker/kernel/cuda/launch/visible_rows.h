#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_VISIBLE_ROWS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_VISIBLE_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "attention/sharding/task_sweeps.h"
#include "attention/spec/interval.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/call_pieces.h"
#include "worker/kernel/compute_pool.h"

namespace annulus::cuda {

// The visible keys of every query row of every task of a call, in shard-local key rows, clipped to
// the task's keys: as CallVisibility (visibility.h), by stretches of rows. A plan asks for tiles of
// rows, and under most masks a tile is one stretch or two. Immutable after construction.
class VisibleRows {
 public:
  // Mask and tasks must outlive this. Uses `pool` where many rows must be asked for one by one.
  VisibleRows(const MaskMap& mask, absl::Span<const KernelTask> tasks, ComputePool& pool);

  // What query head `q_head` of rows `rows` of a task sees: calls fn(part, sweeps, skip) for
  // stretches of them, as TaskSweeps::ForEach.
  template <typename Fn>
  void ForEach(int32_t task, int32_t q_head, Interval rows, const Fn& fn) const {
    if (pieces_.SeesAll(task)) {
      const Sweep all = {pieces_.KeysOf(task), 0, 0};
      return fn(rows, absl::MakeConstSpan(&all, 1), 0);
    }
    while (rows.begin < rows.end) {
      const auto [piece, row] = pieces_.Find(task, q_head, rows.begin);
      const int64_t end = std::min(rows.end, rows.begin + Pieces::kRows - row);
      piece.ForEach({rows.begin, end}, fn);
      rows.begin = end;
    }
  }

  // Spans of those rows together.
  int64_t Spans(int32_t task, int32_t q_head, Interval rows) const;

 private:
  using Pieces = CallPieces<TaskSweeps>;
  Pieces pieces_;
};

// A call, as its plan reads it: task `index` of it is what `tasks` has there. Borrows everything.
struct CallView {
  const KernelJob& job;
  absl::Span<const KernelTask> tasks;
  const VisibleRows& visible;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_VISIBLE_ROWS_H_
