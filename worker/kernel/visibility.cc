#include "worker/kernel/visibility.h"

#include <utility>

namespace annulus {

CallVisibility::CallVisibility(const MaskMap& mask, absl::Span<const KernelTask> tasks,
                               ComputePool& pool)
    : class_begin_(mask.class_begin()), entries_(tasks.size()) {
  std::vector<std::pair<int32_t, int32_t>> asked;  // (task, class)
  for (size_t t = 0; t < tasks.size(); ++t) {
    const Task& task = tasks[t].task;
    Entry& entry = entries_[t];
    entry.all = {task.k_begin, task.k_end};
    entry.q_begin = task.q_begin;
    if (task.coverage == Coverage::kFull) continue;
    entry.class_begin = ClassOf(task.head_begin);
    entry.by_class.resize(ClassOf(task.head_end - 1) - entry.class_begin + 1);
    for (size_t c = 0; c < entry.by_class.size(); ++c)
      asked.emplace_back(static_cast<int32_t>(t), static_cast<int32_t>(c));
  }
  pool.ParallelFor(static_cast<int64_t>(asked.size()), [&](int64_t index, int) {
    const auto [t, c] = asked[index];
    const KernelTask& bound = tasks[t];
    Entry& entry = entries_[t];
    const int32_t head = std::max(class_begin_[entry.class_begin + c], bound.task.head_begin);
    entry.by_class[c] = VisibleInTask(mask, *bound.q_rows, *bound.k_rows,
                                      {bound.task.q_begin, bound.task.q_end}, entry.all, head);
  });
}

}  // namespace annulus
