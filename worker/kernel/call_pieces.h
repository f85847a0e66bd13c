#ifndef ANNULUS_WORKER_KERNEL_CALL_PIECES_H_
#define ANNULUS_WORKER_KERNEL_CALL_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "attention/spec/interval.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Holds one ROWS (the caller's type) for each piece of query rows of a call. Only tasks with masked
// pairs have pieces: one sequence of pieces for each class of their heads. All heads of a class see
// the same keys.
template <class ROWS>
class CallPieces {
 public:
  // Rows of a piece: the amount of work that one thread takes at a time.
  static constexpr int64_t kRows = 4096;
  // A piece to fill: query rows `q` of a task, with the keys visible to `head`.
  struct Asked {
    size_t task;
    int32_t head;
    Interval q;
    ROWS* rows;
  };
  struct Place {
    const ROWS& rows;
    int64_t row;  // Counts from the piece's first row.
  };

  // `mask` must outlive this.
  explicit CallPieces(const MaskMap& mask) : mask_(mask) {}

  // Makes the pieces of a call; call it once. The caller fills the returned ones.
  std::vector<Asked> Cut(absl::Span<const KernelTask> tasks) {
    std::vector<Asked> asked;
    entries_.resize(tasks.size());
    for (size_t t = 0; t < tasks.size(); ++t) {
      const Task& task = tasks[t].task;
      Entry& entry = entries_[t];
      entry.all = {task.k_begin, task.k_end};
      entry.q_begin = task.q_begin;
      if (task.coverage == Coverage::kFull) continue;
      entry.slot_of_class.resize(mask_.classes());
      std::vector<int32_t> heads;
      mask_.ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
        entry.slot_of_class[mask_.ClassOf(head)] = static_cast<int16_t>(heads.size());
        heads.push_back(head);
      });
      entry.pieces = (task.q_end - task.q_begin + kRows - 1) / kRows;
      entry.by_class.resize(heads.size() * entry.pieces);
      ROWS* rows = entry.by_class.data();
      for (const int32_t head : heads)
        for (int64_t q = task.q_begin; q < task.q_end; q += kRows)
          asked.push_back({t, head, {q, std::min(q + kRows, task.q_end)}, rows++});
    }
    return asked;
  }

  const MaskMap& mask() const { return mask_; }
  // KeysOf: the task's key rows. SeesAll: true if all rows and heads of the task see all of them;
  // the task then has no pieces.
  const Interval& KeysOf(size_t task) const { return entries_[task].all; }
  bool SeesAll(size_t task) const { return entries_[task].by_class.empty(); }

  // Finds the piece of query row `row` of a task, with the keys visible to `q_head`. Requires
  // !SeesAll(task).
  Place Find(size_t task, int32_t q_head, int64_t row) const {
    const Entry& entry = entries_[task];
    const int64_t of_task = row - entry.q_begin;
    return {
        entry.by_class[entry.slot_of_class[mask_.ClassOf(q_head)] * entry.pieces + of_task / kRows],
        of_task % kRows};
  }

 private:
  struct Entry {
    Interval all;
    int64_t q_begin = 0;
    std::vector<int16_t> slot_of_class;
    int64_t pieces = 0;
    std::vector<ROWS> by_class;  // [class of the task's heads][piece]
  };
  const MaskMap& mask_;
  std::vector<Entry> entries_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CALL_PIECES_H_
