#ifndef ANNULUS_ATTENTION_SHARDING_BALANCED_PARTITION_H_
#define ANNULUS_ATTENTION_SHARDING_BALANCED_PARTITION_H_

#include <cstdint>
#include <vector>

#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// A piece of a job: rows of the packed query tensor and rows of the packed key tensor. Either may
// be empty.
struct AreaBlock {
  Interval q, k;
  int64_t area = 0;  // Visible (query, key) pairs of its queries, with all keys, × query heads.
};

// Blocks of a job for `world_size` ranks, in order of rows: at least kBlocksPerRank for each rank
// where there are as many rows, and not many more. Each lies in one sequence, at the same share of
// its queries and of its keys, or holds several short sequences whole.
constexpr int64_t kBlocksPerRank = 16;
std::vector<AreaBlock> PartitionByArea(const AttentionSpec& spec, int32_t world_size);

// The rank of each block: blocks of most area first, each to the rank that has least so far (ties:
// fewest rows) and has room. Where areas fall evenly that deals like a snake: 0 1 2 2 1 0.
std::vector<int32_t> AssignByArea(const std::vector<AreaBlock>& blocks, int32_t world_size);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_BALANCED_PARTITION_H_
