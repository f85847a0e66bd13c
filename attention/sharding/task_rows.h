#ifndef ANNULUS_ATTENTION_SHARDING_TASK_ROWS_H_
#define ANNULUS_ATTENTION_SHARDING_TASK_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/interval.h"

namespace annulus {

// Appends `keys`, an interval that a row sees, to that row's spans, which begin at index
// `first_of_row`. Joins it to the last span if they touch: keys that are apart globally may touch
// locally, if the shard has none of the rows between.
template <typename List>
void AppendLocal(Interval keys, size_t first_of_row, List* spans) {
  if (keys.length() == 0) return;
  if (spans->size() > first_of_row && spans->back().end == keys.begin) {
    spans->back().end = keys.end;
  } else {
    spans->push_back(keys);
  }
}

// The visible keys of each query row of a task, as local rows of the key shard, clipped to the
// task's keys. Row i's intervals are spans[first[i]] … spans[first[i + 1]), sorted and disjoint;
// none if the row sees no key.
struct TaskRows {
  std::vector<Interval> spans;
  std::vector<int32_t> first;  // q rows + 1 entries
};

// Evaluates the mask for query rows `q` and key rows `k`, which are local rows of the shards with
// row maps `q_map` and `k_map`. `q_head` is one query head; it stands for its whole mask class.
// Pure; O(rows).
TaskRows VisibleInTask(const MaskMap& mask, const RowMap& q_map, const RowMap& k_map, Interval q,
                       Interval k, int32_t q_head);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_TASK_ROWS_H_
