#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_TASK_PAIRS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_TASK_PAIRS_H_

#include <cstdint>

#include "attention/schedule/model/plan_memo.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// What tasks of one rank's schedule cost. Schedule and request must outlive it.
class TaskPairs {
 public:
  // With a memo, what it knows is not counted again.
  TaskPairs(const RankSchedule& schedule, const ScheduleRequest& request, PlanMemo* memo = nullptr)
      : schedule_(schedule), request_(request), memo_(memo) {}

  // Visible pairs × query heads; about so for stripes (attention/sharding/visible_pairs.h).
  int64_t Visible(const Task& task) const;
  // By the share of a gradient's products that the task makes.
  int64_t Of(const Task& task) const;
  // Key rows that some of the task's query rows see × key/value heads; about so for stripes, and
  // where query heads of one key/value head see different keys.
  int64_t Keys(const Task& task) const;

  // How many of the task's query rows, from its first on, cost about `pairs`, of `all` that it
  // costs.
  int64_t RowsWith(const Task& task, int64_t pairs, int64_t all) const;

  const RowMap& q_rows(const Task& task) const { return ShardOf(task.q).q_rows; }
  const RowMap& k_rows(const Task& task) const { return ShardOf(task.kv).kv_rows; }

 private:
  const Shard& ShardOf(int32_t buffer) const {
    return request_.plan->shards[schedule_.buffers[buffer].shard];
  }
  int64_t OfClass(const Task& task, int32_t head) const;
  int64_t KeysOfClass(const Task& task, int32_t head) const;
  int64_t ProductsOf(const Task& task) const;

  const RankSchedule& schedule_;
  const ScheduleRequest& request_;
  PlanMemo* const memo_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_PASSES_TASK_PAIRS_H_
