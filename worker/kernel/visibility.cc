#include "worker/kernel/visibility.h"

#include <algorithm>
#include <utility>

namespace annulus {

CallVisibility::CallVisibility(const MaskMap& mask, absl::Span<const KernelTask> tasks,
                               ComputePool& pool)
    : mask_(mask), entries_(tasks.size()) {
  struct Asked {
    size_t task;
    int32_t head;
    Interval q;
    TaskRows* rows;
  };
  std::vector<Asked> asked;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const Task& task = tasks[t].task;
    Entry& entry = entries_[t];
    entry.all = {task.k_begin, task.k_end};
    entry.q_begin = task.q_begin;
    if (task.coverage == Coverage::kFull) continue;
    entry.slot_of_class.resize(mask.classes());
    std::vector<int32_t> heads;
    mask.ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
      entry.slot_of_class[mask.ClassOf(head)] = static_cast<int16_t>(heads.size());
      heads.push_back(head);
    });
    entry.pieces = (task.q_end - task.q_begin + kPieceRows - 1) / kPieceRows;
    entry.by_class.resize(heads.size() * entry.pieces);
    TaskRows* rows = entry.by_class.data();
    for (const int32_t head : heads)
      for (int64_t q = task.q_begin; q < task.q_end; q += kPieceRows)
        asked.push_back({t, head, {q, std::min(q + kPieceRows, task.q_end)}, rows++});
  }
  pool.ParallelFor(static_cast<int64_t>(asked.size()), [&](int64_t index, int) {
    const auto& [t, head, q, rows] = asked[index];
    const KernelTask& bound = tasks[t];
    *rows = VisibleInTask(mask, *bound.q_rows, *bound.k_rows, q, entries_[t].all, head);
  });
}

}  // namespace annulus
