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
// the task's keys. Unlike CallVisibility (visibility.h), it returns runs of rows: a plan asks for
// tiles of rows, and under most masks a tile is one run or two. Immutable after construction.
class VisibleRows {
 public:
  // `mask` and `tasks` must outlive this. Uses `pool` if many rows must be queried one by one.
  VisibleRows(const MaskMap& mask, absl::Span<const KernelTask> tasks, ComputePool& pool);

  // The visible keys of query head `q_head` of rows `rows` of a task: calls fn(part, sweeps, skip)
  // for runs of the rows, as TaskSweeps::ForEach.
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

  // The total number of spans of those rows.
  int64_t Spans(int32_t task, int32_t q_head, Interval rows) const;

 private:
  using Pieces = CallPieces<TaskSweeps>;
  Pieces pieces_;
};

// A call as its plan reads it: task `index` is tasks[index]. Owns nothing.
struct CallView {
  const KernelJob& job;
  absl::Span<const KernelTask> tasks;
  const VisibleRows& visible;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_VISIBLE_ROWS_H_
