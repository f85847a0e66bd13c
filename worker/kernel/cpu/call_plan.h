#ifndef ANNULUS_WORKER_KERNEL_CPU_CALL_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CPU_CALL_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/visibility.h"

namespace annulus {

// How one Accumulate call is cut into work that threads can share: pure functions, no arithmetic on
// tensors.
//
// A call is a list of phases that run one after the other. A phase packs some blocks of keys (as
// many as its memory holds), then runs items. An item owns its accumulator rows for the phase, so
// threads never meet, and runs its units in task order: an accumulator row sees its keys in list
// order whatever the number of threads.
//
// Rows of an item are "query slots": slot = shard-local row · group + query head within its
// key/value head's group. Slots share packed keys, and a call with few rows and many heads still
// fills its tiles.

// Keys of one key/value buffer that a phase packs, for each of the phase's heads:
// blocks [block_begin, block_end) of kKeyBlock shard-local rows, from slot `first_pack` on.
struct PackedSource {
  int32_t source = 0;
  int64_t block_begin = 0, block_end = 0;
  int64_t first_pack = 0;
};

// One task's part in a phase: its keys in blocks [block_begin, block_end), from packed source
// `packed`.
struct Unit {
  int32_t task = 0;
  int32_t packed = 0;
  int64_t block_begin = 0, block_end = 0;
  // Of the task's units for these heads: its rows begin with the first and end with the last.
  bool first = false, last = false;
};

// Whether a row of the unit's task begins or ends with the unit.
inline bool BeginsWith(const Unit& unit, const Task& task, int64_t row) {
  return unit.first && task.begins.begin <= row && row < task.begins.end;
}
inline bool EndsWith(const Unit& unit, const Task& task, int64_t row) {
  return unit.last && task.ends.begin <= row && row < task.ends.end;
}

struct Item {
  int32_t kv_head = 0;
  int64_t tile = 0;            // Query slots [tile · kTileRows, (tile + tiles) · kTileRows).
  std::vector<int32_t> units;  // Of the phase, in task order.
  int64_t cost = 0;            // Visible (slot, key) pairs, about.
  int tiles = 1;
};

struct Phase {
  int32_t head_begin = 0, head_end = 0;  // key/value heads
  // Not 0: keys are packed in passing, by each thread for itself, which keeps the last so many
  // blocks of those that it has met.
  int64_t kept = 0;
  std::vector<PackedSource> packed;
  int64_t packs = 0;  // Packed blocks in all.
  std::vector<Unit> units;
  // Largest first. Where keys are packed in passing, each thread's list (compute_pool.h) has
  // neighbouring tiles of neighbouring heads, if it keeps more than one block or if each head has
  // one item, as large as others.
  std::vector<Item> items;

  // The packed block of (source `p`, key/value head, block).
  int64_t PackOf(const PackedSource& p, int32_t head, int64_t block) const {
    return p.first_pack + (head - head_begin) * (p.block_end - p.block_begin) + block -
           p.block_begin;
  }
};

// A key/value buffer of the call, and its shard-local rows and heads that tasks use; others are
// never read.
struct KeySource {
  const BlockView* kv = nullptr;
  std::vector<Interval> rows;  // sorted, disjoint
  int32_t head_begin = 0, head_end = 0;
};

struct CallPlan {
  absl::Span<const KernelTask> tasks;
  const CallVisibility* visible = nullptr;
  int group = 1;  // Query heads of a key/value head.
  std::vector<KeySource> sources;
  std::vector<int32_t> source_of_task;
};

// Keeps views of `tasks` and `visible`, which must outlive the plan.
CallPlan PlanCall(absl::Span<const KernelTask> tasks, const CallVisibility& visible, int group);

struct PhaseLimits {
  int64_t max_packs = 1;  // Packed blocks that memory holds.
  int threads = 1;
  int tiles = 1;  // Neighbouring tiles that an item may have: where there are items enough, and
                  // keys enough that it pays to read them for more rows at once.
  // Who runs an item packs its keys, so an item has all the tiles that it may.
  bool passing = false;
  int64_t most_kept = 0;  // Packed blocks that a thread may keep.
};

// The phases of a call, in order. What an item sees nothing of is not among its units, unless rows
// begin or end with it; items without units and phases without items are left out. Units count as
// progress; told to stop, it returns what is of no use. A phase may exceed max_packs only by
// holding one block of the least number of heads that keeps the threads busy.
std::vector<Phase> PlanPhases(const CallPlan& plan, const PhaseLimits& limits,
                              const KernelControl& control = {});

// Packed blocks that the largest phase needs ahead, and those that threads keep.
int64_t LargestPhase(const std::vector<Phase>& phases);
int64_t MostKept(const std::vector<Phase>& phases);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_CALL_PLAN_H_
