#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_GROUP_VIEW_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_GROUP_VIEW_H_

#include <cstdint>

#include "attention/schedule/model/needs.h"
#include "attention/schedule/model/rectangles.h"
#include "attention/schedule/model/schedule_data.h"
#include "attention/spec/parallel_degrees.h"

namespace annulus {

// The differences between the schedules of a forward pass and of gradients.
struct Pass {
  // Kinds of blocks of query rows: the queries as they travel, the accumulator, the output.
  BlockKind queries, state, finished;
  bool key_gradients;  // True if tasks also accumulate gradients of keys.
  // The first step with transfers and tasks. Gradients compute the deltas of own queries before it.
  int32_t first;
};
inline constexpr Pass kForwardPass{BlockKind::kQ, BlockKind::kPartial, BlockKind::kOut, false, 0};
inline constexpr Pass kGradientPass{BlockKind::kQGrad, BlockKind::kDq, BlockKind::kDqOut, true, 1};
// Gradients of queries only; key_pass.h makes those of keys in a pass of their own.
inline constexpr Pass kQueryGradientPass{BlockKind::kQGrad, BlockKind::kDq, BlockKind::kDqOut,
                                         false, 1};

// The inputs of the builders for all ranks of a group. Everything it refers to outlives the
// builders.
struct GroupView {
  const ScheduleRequest& request;
  ParallelDegrees degrees;
  const Needs& needs;  // Needs for the rows that travel.
  RectangleTable& rectangles;
  bool two_passes = false;  // True if gradients of queries and of keys are made in separate passes.

  int32_t world() const { return request.plan->world_size; }
  const Shard& shard(int32_t index) const { return request.plan->shards[index]; }
  const Pass& pass() const {
    if (request.spec->operation == Operation::kForward) return kForwardPass;
    return two_passes ? kQueryGradientPass : kGradientPass;
  }
  // The rank `hops` (|hops| ≤ W) after `rank`, in cyclic rank order.
  int32_t After(int32_t rank, int32_t hops) const { return (rank + hops + world()) % world(); }
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_GROUP_VIEW_H_
