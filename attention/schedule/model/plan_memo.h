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

// Caches results that depend on the plan only, for all executions on it: needs of ranks, rectangles
// of shards, and visible pairs of tasks. Not thread-safe.
class PlanMemo {
 public:
  // Spec, mask and plan of the request must outlive this.
  explicit PlanMemo(const ScheduleRequest& request);

  const Needs& NeedsOf(RowSpace travels);
  RectangleTable& rectangles() { return rectangles_; }

  // Counts of visible pairs of local rows `q` of a query shard and `k` of a key shard, by class of
  // heads; -1 if not yet counted. The caller fills them in. References stay valid.
  std::vector<int64_t>& PairsOf(int32_t q_shard, Interval q, int32_t k_shard, Interval k);
  // PairsOf for counts of the key rows in `k` that at least one query row of `q` sees.
  std::vector<int64_t>& KeysOf(int32_t q_shard, Interval q, int32_t k_shard, Interval k);

 private:
  using Counts = std::map<std::array<int64_t, 6>, std::vector<int64_t>>;
  std::vector<int64_t>& Of(const std::array<int64_t, 6>& rectangle, Counts* counts) const;

  const ScheduleRequest request_;
  RectangleTable rectangles_;
  std::unique_ptr<Needs> needs_[2];  // Index 0: queries, 1: keys. Made on first use.
  Counts pairs_, keys_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_PLAN_MEMO_H_
