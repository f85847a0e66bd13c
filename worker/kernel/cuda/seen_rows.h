#ifndef ANNULUS_WORKER_KERNEL_CUDA_SEEN_ROWS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SEEN_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/interval.h"
#include "attention/mask.h"
#include "attention/task_sweeps.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/compute_pool.h"

namespace annulus::cuda {

// The visible keys of every query row of every task of a call, in shard-local key rows, clipped to
// the task's keys: as CallVisibility (visibility.h), by stretches of rows. A plan asks for tiles of
// rows, and under most masks a tile is one stretch or two. Immutable after construction.
class SeenRows {
 public:
  // Mask and tasks must outlive this. Uses `pool` where many rows must be asked for one by one.
  SeenRows(const MaskMap& mask, absl::Span<const KernelTask> tasks, ComputePool& pool);

  // What query head `q_head` of rows `rows` of a task sees: calls fn(part, sweeps, skip) for
  // stretches of them, as TaskSweeps::ForEach.
  template <typename Fn>
  void ForEach(int32_t task, int32_t q_head, Interval rows, const Fn& fn) const {
    const Entry& entry = entries_[task];
    if (entry.by_class.empty()) {
      const Sweep all = {entry.all, 0, 0};
      return fn(rows, absl::MakeConstSpan(&all, 1), 0);
    }
    const TaskSweeps* pieces =
        entry.by_class.data() + entry.slot_of_class[mask_.ClassOf(q_head)] * entry.pieces;
    while (rows.begin < rows.end) {
      const int64_t piece = (rows.begin - entry.q_begin) / kPieceRows;
      const int64_t end = std::min(rows.end, entry.q_begin + (piece + 1) * kPieceRows);
      pieces[piece].ForEach({rows.begin, end}, fn);
      rows.begin = end;
    }
  }

  // Spans of those rows together.
  int64_t Spans(int32_t task, int32_t q_head, Interval rows) const;

 private:
  struct Entry {
    Interval all;  // The task's keys, which every row sees where by_class is empty.
    int64_t q_begin = 0;
    std::vector<int16_t> slot_of_class;
    int64_t pieces = 0;
    std::vector<TaskSweeps> by_class;  // Of the task's heads, each in pieces of rows.
  };
  // Rows that one thread asks for at once.
  static constexpr int64_t kPieceRows = 4096;
  const MaskMap& mask_;
  std::vector<Entry> entries_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SEEN_ROWS_H_
