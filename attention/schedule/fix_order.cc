#include "attention/schedule/fix_order.h"

#include <algorithm>
#include <map>

namespace annulus {

bool FoldsInOrder(Strategy strategy) {
  return strategy != Strategy::kRingPassQ && strategy != Strategy::kTree;
}

void FixOrder(const ShardPlan& plan, RankSchedule* schedule) {
  struct Placed {
    int64_t first_key;
    int32_t step;
    Task task;
  };
  std::vector<Placed> tasks;
  for (size_t step = 0; step < schedule->steps.size(); ++step) {
    for (const Task& task : schedule->steps[step].tasks) {
      const RowMap& keys = plan.shards[schedule->buffers[task.kv].shard].kv_rows;
      tasks.push_back({keys.Global(task.k_begin), static_cast<int32_t>(step), task});
    }
    schedule->steps[step].tasks.clear();
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Placed& a, const Placed& b) { return a.first_key < b.first_key; });
  std::map<int32_t, int32_t> earliest;  // Step, by accumulator.
  for (const Placed& placed : tasks) {
    int32_t& step = earliest[placed.task.out_q];
    step = std::max(step, placed.step);
    schedule->steps[step].tasks.push_back(placed.task);
  }
}

}  // namespace annulus
