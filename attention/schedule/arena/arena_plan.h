#ifndef ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_PLAN_H_
#define ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_PLAN_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Where each buffer of a rank's schedule lies in one arena, and when it is alive, in half-steps:
// 2k = transfers and tasks of step k, 2k+1 = its ops. The double buffer of a ring falls out of it.
struct ArenaPlan {
  struct Slot {
    int32_t born = 0, dies = 0;  // Alive in half-steps [born, dies].
    int64_t offset = 0, bytes = 0;
    // First written by a task (not by a receive, not an input): the executor sets it to the
    // identity before step born / 2.
    bool starts_as_identity = false;
  };
  std::vector<Slot> slots;  // One for each buffer.
  int64_t arena_bytes = 0;  // Peak, alignment included.
};

// Buffers that need no memory where a device reads and writes the tensors of staging themselves, by
// number: inputs that nothing writes to and outputs that only ops write to, but for those of which
// transfers take or bring rows, which must be one piece, and for accumulators.
std::vector<bool> BuffersInStaging(const RankSchedule& schedule);

// Liveness and first fit; offsets are multiples of `alignment` (a power of two). Buffers that are
// `in_staging` (empty: none are) have no slot to speak of: of no bytes; the arena is no larger than
// that of all buffers.
ArenaPlan PlanArena(const RankSchedule& schedule, const BlockLayout& layout,
                    int64_t alignment = 128, const std::vector<bool>& in_staging = {});

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_PLAN_H_
