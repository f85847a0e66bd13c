#ifndef ANNULUS_ATTENTION_SHARDING_SHARD_PLAN_H_
#define ANNULUS_ATTENTION_SHARDING_SHARD_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// What one rank owns. A shard may be empty on either side.
struct Shard {
  int32_t owner = 0;  // Rank.
  RowMap q_rows;
  RowMap kv_rows;
  const RowMap& rows(RowSpace space) const { return space == RowSpace::kQuery ? q_rows : kv_rows; }
};

// Which rank owns which rows: every query row and every key row of a job in exactly one shard.
// Shard s is owned by rank s.
struct ShardPlan {
  int32_t world_size = 1;  // Ranks.
  Layout layout = Layout::kContiguous;
  int64_t granule = 1;  // Schedules round what they move to it.
  std::vector<Shard> shards;
};

// Integers that decide a plan, beside the spec: what the coordinator ships to workers.
struct PlanOptions {
  int32_t world_size = 1;
  Layout layout = Layout::kContiguous;  // Not kAuto.
  int64_t stripe = 1;                   // Rows of a stripe (striped layout only).
  int64_t granule = 1;  // Every cut is a multiple of it, in rows of the packed tensor.
};

// Rows of a tile of keys in which a deterministic job folds: whatever the plan, a row's keys are
// taken tile by tile, from global multiples of it. A multiple of every kernel's own block.
inline constexpr int64_t kFoldTile = 256;

// The granule of plans for a spec.
inline int64_t GranuleOf(const AttentionSpec& spec) { return spec.deterministic ? kFoldTile : 1; }

// Rows of a stripe where a request leaves them open: 1, or for a deterministic job whole tiles, few
// enough that planning stays short.
int32_t StripeOf(const AttentionSpec& spec);
// The most stripes of a deterministic job: each is a task of its own.
inline constexpr int64_t kMaxFoldStripes = 256;

// A pure function of its arguments, the same on every machine. Any lengths, shorter than W included
// (formulas: docs/reference/numerics.md). Query and key tensors are cut each by itself:
//
// - contiguous: W blocks of nearly equal size, the first (L mod W) one granule larger; rank r has
//   block r
// - zigzag: 2W blocks likewise; rank r has blocks r and 2W−1−r
// - striped: stripes of `stripe` rows; stripe i to rank i mod W
// - zigzag per sequence: zigzag inside each sequence; a rank's rows run sequence by sequence
// - by area: blocks of the rows of both tensors together, dealt so that all ranks have about as
//   many visible pairs (attention/sharding/balanced_partition.h)
//
// The last two cut where sequences end; with a granule above 1 each cut moves down to a multiple.
//
// Zigzag cuts the packed tensor as a whole. Under a causal mask that balances one sequence and any
// number of equal ones exactly (in mirrored blocks a sequence's rows at depth x and at depth 1 − x
// meet) and leaves short sequences whole on one or two ranks, so that their keys hardly move.
// Cutting each sequence balances unequal ones, and moves every key. INVALID_ARGUMENT for options
// out of range.
absl::StatusOr<ShardPlan> MakeShardPlan(const AttentionSpec& spec, const PlanOptions& options);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_SHARD_PLAN_H_
