#include "attention/schedule/fix_order.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/degrees.h"

namespace annulus {
namespace {

struct Placed {
  // What adds to queries alone by its keys; what adds to keys by its tile of queries, its heads and
  // its keys, which is right for queries, too.
  std::tuple<bool, int64_t, int32_t, int64_t> order;
  int32_t step = 0;
  Task task;
};

class Order {
 public:
  Order(const ScheduleRequest& request, RankSchedule* schedule)
      : plan_(*request.plan),
        masks_of_heads_(request.mask->head_runs().size() > 1),
        schedule_(*schedule) {}

  void Fix() {
    for (size_t step = 0; step < schedule_.steps.size(); ++step) {
      for (const Task& task : schedule_.steps[step].tasks) Take(static_cast<int32_t>(step), task);
      schedule_.steps[step].tasks.clear();
    }
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Placed& a, const Placed& b) { return a.order < b.order; });
    std::map<int32_t, int32_t> earliest;  // Step, by accumulator.
    for (const Placed& placed : tasks_) {
      int32_t step = placed.step;
      for (const int32_t sums : {placed.task.out_q, placed.task.out_kv}) {
        if (sums >= 0) step = std::max(step, earliest[sums]);
      }
      for (const int32_t sums : {placed.task.out_q, placed.task.out_kv}) {
        if (sums >= 0) earliest[sums] = step;
      }
      schedule_.steps[step].tasks.push_back(placed.task);
    }
  }

 private:
  const Shard& ShardOf(int32_t buffer) const {
    return plan_.shards[schedule_.buffers[buffer].shard];
  }

  // Tile by tile where heads with masks of their own share keys and take turns, and where the task
  // adds to both sides, whose orders agree within a tile of queries.
  void Take(int32_t step, const Task& task) {
    const int64_t first_key = ShardOf(task.kv).kv_rows.Global(task.k_begin);
    if (task.out_kv < 0) {
      tasks_.push_back({{false, first_key, 0, 0}, step, task});
      return;
    }
    const Interval rows{task.q_begin, task.q_end};
    const bool by_tile = masks_of_heads_ || task.out_q >= 0;
    ShardOf(task.q).q_rows.ForEachRun(rows, [&](int64_t local, int64_t global, int64_t count) {
      for (int64_t at = 0; at < count;) {
        const int64_t tile = (global + at) / plan_.granule;
        const int64_t end = by_tile ? std::min(count, (tile + 1) * plan_.granule - global) : count;
        Task cut = task;
        cut.q_begin = local + at;
        cut.q_end = local + end;
        tasks_.push_back({{true, tile, task.head_begin, first_key}, step, cut});
        at = end;
      }
    });
  }

  const ShardPlan& plan_;
  const bool masks_of_heads_;
  RankSchedule& schedule_;
  std::vector<Placed> tasks_;
};

}  // namespace

bool FoldsInOrder(const AttentionSpec& spec, Strategy strategy, int32_t ulysses_degree) {
  if (!spec.deterministic) return true;
  return strategy != Strategy::kRingPassQ && strategy != Strategy::kTree &&
         !SharesKeyHeads(spec, ulysses_degree) && !SharesBiasGradient(spec, ulysses_degree);
}

void FixOrder(const ScheduleRequest& request, RankSchedule* schedule) {
  Order(request, schedule).Fix();
}

}  // namespace annulus
