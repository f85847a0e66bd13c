#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_GROUP_VIEW_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_GROUP_VIEW_H_

#include <cstdint>

#include "attention/schedule/model/needs.h"
#include "attention/schedule/model/rectangles.h"
#include "attention/schedule/model/schedule_data.h"
#include "attention/spec/parallel_degrees.h"

namespace annulus {

// In what the schedules of a forward pass and of gradients differ.
struct Pass {
  BlockKind queries, state, finished;  // Of query rows: as they travel, accumulated, as outputs.
  bool key_gradients;                  // Tasks accumulate into keys as well.
  // The step of the first transfers and tasks. Gradients make the deltas of own queries before it.
  int32_t first;
};
inline constexpr Pass kForwardPass{BlockKind::kQ, BlockKind::kPartial, BlockKind::kOut, false, 0};
inline constexpr Pass kGradientPass{BlockKind::kQGrad, BlockKind::kDq, BlockKind::kDqOut, true, 1};
// The gradients of queries alone, where those of keys are made in a pass of their own (key_pass.h).
inline constexpr Pass kQueryGradientPass{BlockKind::kQGrad, BlockKind::kDq, BlockKind::kDqOut,
                                         false, 1};

// What the schedules of all ranks of a group are made from. Everything in it outlives the builders.
struct GroupView {
  const ScheduleRequest& request;
  ParallelDegrees degrees;
  const Needs& needs;  // Of the rows that travel.
  RectangleTable& rectangles;
  bool two_passes = false;  // Of gradients.

  int32_t world() const { return request.plan->world_size; }
  const Shard& shard(int32_t index) const { return request.plan->shards[index]; }
  const Pass& pass() const {
    if (request.spec->operation == Operation::kForward) return kForwardPass;
    return two_passes ? kQueryGradientPass : kGradientPass;
  }
  // The rank `hops` (|hops| ≤ W) after `rank`, in rank order and round.
  int32_t After(int32_t rank, int32_t hops) const { return (rank + hops + world()) % world(); }
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_GROUP_VIEW_H_
