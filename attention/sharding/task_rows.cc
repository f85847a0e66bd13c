#include "attention/sharding/task_rows.h"

namespace annulus {

TaskRows VisibleInTask(const MaskMap& mask, const RowMap& q_map, const RowMap& k_map, Interval q,
                       Interval k, int32_t q_head) {
  TaskRows rows;
  rows.first.reserve(static_cast<size_t>(q.length()) + 1);
  rows.spans.reserve(static_cast<size_t>(q.length()));
  q_map.ForEachRun(q, [&](int64_t, int64_t global, int64_t count) {
    mask.ForEachSweep(q_head, {global, global + count},
                      [&](Interval part, const MovingIntervals& sweeps) {
                        for (int64_t i = 0; i < part.length(); ++i) {
                          const size_t first = rows.spans.size();
                          rows.first.push_back(static_cast<int32_t>(first));
                          for (const Sweep& sweep : sweeps)
                            AppendLocal(Intersect(k_map.Local(sweep.At(i)), k), first, &rows.spans);
                        }
                      });
  });
  rows.first.push_back(static_cast<int32_t>(rows.spans.size()));
  return rows;
}

}  // namespace annulus
