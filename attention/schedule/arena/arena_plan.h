#ifndef ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_PLAN_H_
#define ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_PLAN_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// The offset and the life of each buffer of a rank's schedule in one arena. Lives are in
// half-steps: 2k is transfers and tasks of step k, 2k+1 is its ops. The double buffer of a ring
// results from the lives.
struct ArenaPlan {
  struct Slot {
    int32_t born = 0, dies = 0;  // Alive in half-steps [born, dies].
    int64_t offset = 0, bytes = 0;
    // True if a task or an op that adds is the first use. The executor sets the buffer to the
    // identity before step born / 2.
    bool starts_as_identity = false;
  };
  std::vector<Slot> slots;  // By buffer.
  int64_t arena_bytes = 0;  // Peak in bytes, including alignment.
};

// Marks buffers that need no memory if a device reads and writes staging directly: inputs that
// nothing writes to, and outputs that only ops write to. Accumulators, and buffers with transfers,
// which need contiguous rows, are not marked.
std::vector<bool> BuffersInStaging(const RankSchedule& schedule);

// Computes lives and places buffers by first fit. Offsets are multiples of `alignment`, a power of
// two. Buffers marked in `in_staging` (empty: none) get slots of 0 bytes, and the arena is no
// larger than that of all buffers. Pure.
ArenaPlan PlanArena(const RankSchedule& schedule, const BlockLayout& layout,
                    int64_t alignment = 128, const std::vector<bool>& in_staging = {});

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_PLAN_H_
