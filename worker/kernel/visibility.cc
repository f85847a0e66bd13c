#include "worker/kernel/visibility.h"

namespace annulus {

CallVisibility::CallVisibility(const MaskMap& mask, absl::Span<const KernelTask> tasks,
                               ComputePool& pool)
    : pieces_(mask) {
  const auto asked = pieces_.Cut(tasks);
  pool.ParallelFor(static_cast<int64_t>(asked.size()), [&](int64_t index, int) {
    const auto& [t, head, q, rows] = asked[index];
    const KernelTask& bound = tasks[t];
    *rows = VisibleInTask(mask, *bound.q_rows, *bound.k_rows, q, pieces_.KeysOf(t), head);
  });
}

}  // namespace annulus
