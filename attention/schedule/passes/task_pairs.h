#ifndef ANNULUS_ATTENTION_SCHEDULE_PASSES_TASK_PAIRS_H_
#define ANNULUS_ATTENTION_SCHEDULE_PASSES_TASK_PAIRS_H_

#include <cstdint>

#include "attention/schedule/model/plan_memo.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Counts the work of tasks of one rank's schedule. Schedule, request and memo must outlive this.
// Not thread-safe with a memo.
class TaskPairs {
 public:
  // `memo` caches the counts, if given.
  TaskPairs(const RankSchedule& schedule, const ScheduleRequest& request, PlanMemo* memo = nullptr)
      : schedule_(schedule), request_(request), memo_(memo) {}

  // Visible pairs × query heads; an estimate for stripes (attention/sharding/visible_pairs.h).
  int64_t Visible(const Task& task) const;
  // Visible pairs, scaled by the share of a gradient's five products that the task computes.
  int64_t Of(const Task& task) const;
  // Key rows that at least one of the task's query rows sees × key/value heads. An estimate for
  // stripes, and if query heads of one key/value head see different keys.
  int64_t Keys(const Task& task) const;

  // The number of the task's query rows, from the first on, that cost about `pairs`; the whole task
  // costs `all`.
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
