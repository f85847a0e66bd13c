#ifndef ANNULUS_WORKER_STAGING_SHARD_ID_H_
#define ANNULUS_WORKER_STAGING_SHARD_ID_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

namespace annulus {

// Identifies one rank's part of one attempt of a job. Key of the worker's tables.
struct ShardId {
  std::string job_id;
  int32_t attempt = 0;
  int32_t rank = 0;

  friend bool operator==(const ShardId& a, const ShardId& b) {
    return std::tie(a.job_id, a.attempt, a.rank) == std::tie(b.job_id, b.attempt, b.rank);
  }
  friend bool operator<(const ShardId& a, const ShardId& b) {
    return std::tie(a.job_id, a.attempt, a.rank) < std::tie(b.job_id, b.attempt, b.rank);
  }
  template <typename H>
  friend H AbslHashValue(H h, const ShardId& id) {
    return H::combine(std::move(h), id.job_id, id.attempt, id.rank);
  }
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_STAGING_SHARD_ID_H_
