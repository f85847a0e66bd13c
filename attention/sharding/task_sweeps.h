#ifndef ANNULUS_ATTENTION_SHARDING_TASK_SWEEPS_H_
#define ANNULUS_ATTENTION_SHARDING_TASK_SWEEPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/interval.h"

namespace annulus {

// The content of TaskRows (task_rows.h) in compressed form. Consecutive rows form one stretch if
// they see the same number of intervals and each end is fixed or moves by one key per row.
// Immutable after construction.
class TaskSweeps {
 public:
  TaskSweeps() = default;
  // Evaluates the mask for query rows `q` and key rows `k`, like VisibleInTask.
  TaskSweeps(const MaskMap& mask, const RowMap& q_map, const RowMap& k_map, Interval q, Interval k,
             int32_t q_head);

  // Calls fn(part, sweeps, skip) for each stretch that has some of `rows`, in order. `part` is the
  // stretch's rows among `rows`; its first row sees sweeps[i].At(skip).
  template <typename Fn>
  void ForEach(Interval rows, const Fn& fn) const {
    for (size_t s = StretchOf(rows.begin); rows.begin < rows.end; ++s) {
      const Stretch& stretch = stretches_[s];
      const Interval part = {rows.begin, std::min(rows.end, stretches_[s + 1].row)};
      fn(part,
         absl::MakeConstSpan(sweeps_).subspan(stretch.first,
                                              stretches_[s + 1].first - stretch.first),
         part.begin - stretch.row);
      rows.begin = part.end;
    }
  }

  // The number of rows that were evaluated one by one: the cost of construction.
  int64_t asked() const { return asked_; }

 private:
  struct Stretch {
    int64_t row;
    size_t first;  // Index of its first sweep.
  };
  class Maker;
  size_t StretchOf(int64_t row) const;

  std::vector<Stretch> stretches_;  // The last entry is the end of the last stretch.
  std::vector<Sweep> sweeps_;
  int64_t asked_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_TASK_SWEEPS_H_
