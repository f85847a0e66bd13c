#include "server/coordinator/job_plan.h"

#include "attention/tensor_table.h"

namespace annulus {

std::vector<ShardBytes> BytesOfShards(const AttentionSpec& spec, const ShardPlan& plan) {
  std::vector<ShardBytes> bytes(plan.world_size);
  const std::vector<TensorInfo> table = TensorTable(spec);
  for (const Shard& shard : plan.shards) {
    for (const TensorInfo& tensor : table) {
      const int64_t size = shard.rows(tensor.rows).rows() * tensor.row_bytes();
      ShardBytes& of = bytes[shard.owner];
      (tensor.direction == Direction::kInput ? of.input : of.output) += size;
    }
  }
  return bytes;
}

}  // namespace annulus
