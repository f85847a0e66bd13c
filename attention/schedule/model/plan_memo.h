#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_PLAN_MEMO_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_PLAN_MEMO_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "attention/schedule/model/needs.h"
#include "attention/schedule/model/rectangles.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// What is worked out once for a plan, for all executions on it: who needs which rows, the
// rectangles of shards, and the visible pairs of tasks. One thread at a time.
class PlanMemo {
 public:
  // Spec, mask and plan of the request must outlive this.
  explicit PlanMemo(const ScheduleRequest& request);

  const Needs& NeedsOf(RowSpace travels);
  RectangleTable& rectangles() { return rectangles_; }

  // Visible pairs of local rows of a query shard and a key shard, by class of heads; -1 where they
  // have not been counted.
  std::vector<int64_t>& PairsOf(int32_t q_shard, Interval q, int32_t k_shard, Interval k);
  // The same of the key rows that some of the query rows see.
  std::vector<int64_t>& KeysOf(int32_t q_shard, Interval q, int32_t k_shard, Interval k);

 private:
  using Counts = std::map<std::array<int64_t, 6>, std::vector<int64_t>>;
  std::vector<int64_t>& Of(const std::array<int64_t, 6>& rectangle, Counts* counts) const;

  const ScheduleRequest request_;
  RectangleTable rectangles_;
  std::unique_ptr<Needs> needs_[2];  // Of queries, of keys; made when asked for.
  Counts pairs_, keys_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_PLAN_MEMO_H_
