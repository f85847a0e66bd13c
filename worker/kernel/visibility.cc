#include "worker/kernel/visibility.h"

#include <utility>

namespace annulus {

CallVisibility::CallVisibility(const MaskMap& mask, absl::Span<const KernelTask> tasks,
                               ComputePool& pool)
    : mask_(mask), entries_(tasks.size()) {
  struct Asked {
    size_t task;
    int32_t head;
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
    entry.by_class.resize(heads.size());
    for (size_t i = 0; i < heads.size(); ++i) asked.push_back({t, heads[i], &entry.by_class[i]});
  }
  pool.ParallelFor(static_cast<int64_t>(asked.size()), [&](int64_t index, int) {
    const auto& [t, head, rows] = asked[index];
    const KernelTask& bound = tasks[t];
    *rows = VisibleInTask(mask, *bound.q_rows, *bound.k_rows,
                          {bound.task.q_begin, bound.task.q_end}, entries_[t].all, head);
  });
}

}  // namespace annulus
