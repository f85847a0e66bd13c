#ifndef ANNULUS_WORKER_DATA_PLANE_ENDED_SHARDS_H_
#define ANNULUS_WORKER_DATA_PLANE_ENDED_SHARDS_H_

#include <cstddef>
#include <deque>

#include "absl/container/node_hash_set.h"
#include "worker/staging/shard_id.h"

namespace annulus {

// The shards that ended most recently, so that late calls get a precise error. Not thread-safe.
class EndedShards {
 public:
  // At 6,500 jobs a second, this many shards end in the longest wait for a Reserve, 10 s. About 150
  // bytes each.
  static constexpr size_t kMost = 1 << 16;

  void Add(const ShardId& id) {
    const auto [place, added] = ids_.insert(id);
    if (!added) return;
    order_.push_back(&*place);
    if (order_.size() <= kMost) return;
    ids_.erase(ids_.find(*order_.front()));
    order_.pop_front();
  }
  bool Has(const ShardId& id) const { return ids_.contains(id); }

 private:
  absl::node_hash_set<ShardId> ids_;
  std::deque<const ShardId*> order_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_ENDED_SHARDS_H_
