#ifndef ANNULUS_ATTENTION_SHARDING_SHARD_PLAN_H_
#define ANNULUS_ATTENTION_SHARDING_SHARD_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

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

// The rows that one rank owns. Query rows, key rows or both may be empty.
struct Shard {
  int32_t owner = 0;  // Rank.
  RowMap q_rows;
  RowMap kv_rows;
  const RowMap& rows(RowSpace space) const { return space == RowSpace::kQuery ? q_rows : kv_rows; }
};

// Assigns every query row and every key row of a job to exactly one shard. Rank s owns shard s.
struct ShardPlan {
  int32_t world_size = 1;  // The number of ranks.
  Layout layout = Layout::kContiguous;
  int64_t granule = 1;  // Schedules round transfers to multiples of it, in rows.
  std::vector<Shard> shards;
};

// The inputs of a plan beside the spec. The coordinator sends them to workers, which make the same
// plan.
struct PlanOptions {
  int32_t world_size = 1;
  Layout layout = Layout::kContiguous;  // Never kAuto.
  int64_t stripe = 1;                   // Rows per stripe; used by the striped layout only.
  int64_t granule = 1;  // Every cut is a multiple of it, in rows of the packed tensor.
};

// Rows of a tile of keys in a deterministic job. Under any plan, a row's keys are processed tile by
// tile, and tiles begin at global multiples of kFoldTile. A multiple of every kernel's own block.
inline constexpr int64_t kFoldTile = 256;

// The granule of plans for a spec, in rows.
inline int64_t GranuleOf(const AttentionSpec& spec) { return spec.deterministic ? kFoldTile : 1; }

// The default number of rows per stripe: 1, or for a deterministic job a multiple of kFoldTile. The
// multiple makes about 64 stripes, which keeps planning short.
int32_t StripeOf(const AttentionSpec& spec);
// The most stripes of a deterministic job, in which each stripe is a task.
inline constexpr int64_t kMaxFoldStripes = 256;

// Makes the plan. A pure function of its arguments, so every machine gets the same plan. Lengths
// may be anything, including less than W = world_size. Formulas: docs/reference/numerics.md, "Which
// rank owns which rows". Query and key tensors are cut separately:
//
// - contiguous: W blocks of nearly equal size, the first (L mod W) one granule larger; rank r has
//   block r
// - zigzag: 2W such blocks; rank r has blocks r and 2W−1−r
// - striped: stripes of `stripe` rows; rank i mod W has stripe i
// - zigzag per sequence: zigzag inside each sequence; a rank's rows run sequence by sequence
// - by area: blocks of both tensors together, assigned so that all ranks have about as many visible
//   pairs (PartitionByArea, AssignByArea)
//
// The last two cut at sequence ends; with a granule above 1 each cut moves down to a multiple.
//
// Zigzag cuts the packed tensor as a whole. Mirrored blocks pair a sequence's rows at depth x with
// those at depth 1 − x. Under a causal mask this balances one sequence, and any number of equal
// ones, exactly. Short sequences stay whole on one or two ranks, so few of their keys move. Zigzag
// per sequence also balances unequal sequences, but moves every key.
//
// INVALID_ARGUMENT / INVALID_EXECUTION for options out of range.
absl::StatusOr<ShardPlan> MakeShardPlan(const AttentionSpec& spec, const PlanOptions& options);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_SHARD_PLAN_H_
