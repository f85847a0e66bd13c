#include "attention/schedule/passes/fix_order.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/spec/parallel_degrees.h"

namespace annulus {
namespace {

struct Placed {
  // Tasks that add to queries only: by keys. Tasks that add to keys: by tile of queries, heads and
  // keys, which is a valid order for queries, too.
  std::tuple<bool, int64_t, int32_t, int64_t> order;
  int32_t step = 0;
  Task task;
};

// Computes where the tasks of a rank are cut.
class Cuts {
 public:
  Cuts(const ScheduleRequest& request, const RankSchedule& schedule)
      : plan_(*request.plan),
        masks_of_heads_(request.mask->head_runs().size() > 1),
        schedule_(schedule) {}

  const Shard& ShardOf(int32_t buffer) const {
    return plan_.shards[schedule_.buffers[buffer].shard];
  }

  // True if tasks are cut tile by tile. Heads with masks of their own share keys and take turns by
  // tile. For a task that adds to both sides, the two orders agree within a tile of queries.
  bool ByTile(const Task& task) const { return masks_of_heads_ || task.out_q >= 0; }

  int64_t TileOf(int64_t row) const { return row / plan_.granule; }
  int64_t EndOf(int64_t tile) const { return (tile + 1) * plan_.granule; }

  int64_t CountOf(const Task& task) const {
    if (task.out_kv < 0) return 1;
    int64_t count = 0;
    const auto add = [&](int64_t, int64_t global, int64_t rows) {
      count += ByTile(task) ? TileOf(global + rows - 1) - TileOf(global) + 1 : 1;
    };
    ShardOf(task.q).q_rows.ForEachRun({task.q_begin, task.q_end}, add);
    return count;
  }

 private:
  const ShardPlan& plan_;
  const bool masks_of_heads_;
  const RankSchedule& schedule_;
};

class Order {
 public:
  Order(const ScheduleRequest& request, RankSchedule* schedule)
      : cuts_(request, *schedule), schedule_(*schedule) {}

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
  void Take(int32_t step, const Task& task) {
    const int64_t first_key = cuts_.ShardOf(task.kv).kv_rows.Global(task.k_begin);
    if (task.out_kv < 0) {
      tasks_.push_back({{false, first_key, 0, 0}, step, task});
      return;
    }
    const RowMap& q_rows = cuts_.ShardOf(task.q).q_rows;
    const bool by_tile = cuts_.ByTile(task);
    const auto take = [&](int64_t local, int64_t global, int64_t count) {
      for (int64_t at = 0; at < count;) {
        const int64_t tile = cuts_.TileOf(global + at);
        const int64_t end = by_tile ? std::min(count, cuts_.EndOf(tile) - global) : count;
        Task cut = task;
        cut.q_begin = local + at;
        cut.q_end = local + end;
        tasks_.push_back({{true, tile, task.head_begin, first_key}, step, cut});
        at = end;
      }
    };
    q_rows.ForEachRun({task.q_begin, task.q_end}, take);
  }

  const Cuts cuts_;
  RankSchedule& schedule_;
  std::vector<Placed> tasks_;
};

}  // namespace

bool FoldsInOrder(const AttentionSpec& spec, Strategy strategy, int32_t ulysses_degree) {
  if (!spec.deterministic) return true;
  return strategy != Strategy::kRingPassQ && strategy != Strategy::kTree &&
         !SharesKeyHeads(spec, ulysses_degree) && !SharesBiasGradient(spec, ulysses_degree);
}

int64_t CountInOrder(const ScheduleRequest& request, const RankSchedule& schedule) {
  const Cuts cuts(request, schedule);
  int64_t count = 0;
  for (const Step& step : schedule.steps) {
    for (const Task& task : step.tasks) count += cuts.CountOf(task);
  }
  return count;
}

void FixOrder(const ScheduleRequest& request, RankSchedule* schedule) {
  Order(request, schedule).Fix();
}

}  // namespace annulus
