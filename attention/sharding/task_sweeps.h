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

// What TaskRows says (task_rows.h), without a word for each row: rows one after the other that see
// as many intervals each, whose ends stand still or move by one key a row, are one stretch.
class TaskSweeps {
 public:
  TaskSweeps() = default;
  // Evaluates the mask for query rows `q` and key rows `k`, as VisibleInTask does.
  TaskSweeps(const MaskMap& mask, const RowMap& q_map, const RowMap& k_map, Interval q, Interval k,
             int32_t q_head);

  // Calls fn(part, sweeps, skip) for each stretch that has some of `rows`, in order: `part` is its
  // rows among them, the first of which sees sweeps[i].At(skip).
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

  // Rows that were asked for one by one: what making it cost.
  int64_t asked() const { return asked_; }

 private:
  struct Stretch {
    int64_t row;
    size_t first;  // Of its sweeps.
  };
  class Maker;
  size_t StretchOf(int64_t row) const;

  std::vector<Stretch> stretches_;  // And where the last one ends.
  std::vector<Sweep> sweeps_;
  int64_t asked_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_TASK_SWEEPS_H_
