#include "server/coordinator/state/job_plan.h"

#include <algorithm>

#include "attention/spec/tensor_table.h"

namespace annulus {

std::vector<ShardBytes> BytesOfShards(const AttentionSpec& spec, const ShardPlan& plan) {
  std::vector<ShardBytes> bytes(plan.world_size);
  const std::vector<TensorInfo> table = TensorTable(spec);
  for (const Shard& shard : plan.shards) {
    for (const TensorInfo& tensor : table) {
      const int64_t size = shard.rows(tensor.rows).rows() * tensor.row_bytes();
      ShardBytes& of = bytes[shard.owner];
      if (tensor.direction == Direction::kInput) of.input += size;
      if (tensor.direction == Direction::kOutput) of.output += size;
      if (tensor.direction == Direction::kKept) of.kept += size;
    }
  }
  return bytes;
}

int64_t LargestShard(const std::vector<ShardBytes>& bytes) {
  int64_t largest = 0;
  for (const ShardBytes& b : bytes) largest = std::max(largest, b.total());
  return largest;
}

int64_t MostBytesSent(const Cost& cost) {
  int64_t most = 0;
  for (int64_t bytes : cost.bytes_sent) most = std::max(most, bytes);
  return most;
}

}  // namespace annulus
