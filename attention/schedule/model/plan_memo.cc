#include "attention/schedule/model/plan_memo.h"

namespace annulus {

PlanMemo::PlanMemo(const ScheduleRequest& request)
    : request_(request),
      rectangles_(*request.mask, *request.plan,
                  request.spec->deterministic ? request.plan->granule : 0) {}

const Needs& PlanMemo::NeedsOf(RowSpace travels) {
  std::unique_ptr<Needs>& needs = needs_[travels == RowSpace::kKey ? 1 : 0];
  if (needs == nullptr) needs = std::make_unique<Needs>(request_, travels);
  return *needs;
}

std::vector<int64_t>& PlanMemo::Of(const std::array<int64_t, 6>& rectangle, Counts* counts) const {
  std::vector<int64_t>& known = (*counts)[rectangle];
  if (known.empty()) known.assign(request_.mask->classes(), -1);
  return known;
}

std::vector<int64_t>& PlanMemo::PairsOf(int32_t q_shard, Interval q, int32_t k_shard, Interval k) {
  return Of({q_shard, q.begin, q.end, k_shard, k.begin, k.end}, &pairs_);
}

std::vector<int64_t>& PlanMemo::KeysOf(int32_t q_shard, Interval q, int32_t k_shard, Interval k) {
  return Of({q_shard, q.begin, q.end, k_shard, k.begin, k.end}, &keys_);
}

}  // namespace annulus
