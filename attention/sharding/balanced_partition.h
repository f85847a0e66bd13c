#ifndef ANNULUS_ATTENTION_SHARDING_BALANCED_PARTITION_H_
#define ANNULUS_ATTENTION_SHARDING_BALANCED_PARTITION_H_

#include <cstdint>
#include <vector>

#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// A block of a job: an interval of packed query rows and one of packed key rows. Either may be
// empty.
struct AreaBlock {
  Interval q, k;
  int64_t area = 0;  // Visible (query, key) pairs of `q` with all keys, summed over query heads.
};

// Cuts a job into blocks for `world_size` ranks, in row order. There are at least kBlocksPerRank
// blocks for each rank if there are enough rows, and not many more. A block is either the same
// fraction of one sequence's queries and of its keys, or several whole short sequences.
constexpr int64_t kBlocksPerRank = 16;
std::vector<AreaBlock> PartitionByArea(const AttentionSpec& spec, int32_t world_size);

// Assigns each block to a rank. Takes blocks in order of decreasing area. Each goes to the rank
// with the least area so far, or at a tie the fewest rows, among the ranks with room. If areas
// decrease evenly, the order of ranks is a snake: 0 1 2 2 1 0.
std::vector<int32_t> AssignByArea(const std::vector<AreaBlock>& blocks, int32_t world_size);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_BALANCED_PARTITION_H_
