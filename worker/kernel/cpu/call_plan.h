#ifndef ANNULUS_WORKER_KERNEL_CPU_CALL_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CPU_CALL_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/visibility.h"

namespace annulus {

// How one Accumulate call is cut into work that threads can share. Pure functions: no arithmetic on
// tensors.
//
// A call is a list of phases that run one after the other. A phase packs some blocks of keys (as
// many as its memory holds), then runs items. An item owns its accumulator rows during the phase,
// so no two threads write to the same row. It runs its units in task order. So an accumulator row
// sees its keys in list order, whatever the number of threads.
//
// The rows of an item are "query slots": slot = shard-local row · group + query head within its
// key/value head's group. Slots share packed keys, so a call with few rows and many heads still
// fills its tiles.

// Keys of one key/value buffer that a phase packs, for each of the phase's heads: blocks
// [block_begin, block_end) of kKeyBlock shard-local rows. They take the packed blocks from
// `first_pack` on.
struct PackedSource {
  int32_t source = 0;
  int64_t block_begin = 0, block_end = 0;
  int64_t first_pack = 0;
};

// The part of one task in a phase: its keys in blocks [block_begin, block_end), from packed source
// `packed`.
struct Unit {
  int32_t task = 0;
  int32_t packed = 0;
  int64_t block_begin = 0, block_end = 0;
  // True for the first and the last of the task's units for these heads. The task's rows begin with
  // the first and end with the last.
  bool first = false, last = false;
};

// True if `row` of the unit's task begins, or ends, with the unit.
inline bool BeginsWith(const Unit& unit, const Task& task, int64_t row) {
  return unit.first && task.begins.begin <= row && row < task.begins.end;
}
inline bool EndsWith(const Unit& unit, const Task& task, int64_t row) {
  return unit.last && task.ends.begin <= row && row < task.ends.end;
}

// Tiles of query slots that one thread computes alone.
struct Item {
  int32_t kv_head = 0;
  int64_t tile = 0;  // The item's slots are [tile · kTileRows, (tile + tiles) · kTileRows).
  std::vector<int32_t> units;  // Indexes into Phase::units, in task order.
  int64_t cost = 0;            // The approximate number of visible (slot, key) pairs.
  int tiles = 1;
};

struct Phase {
  int32_t head_begin = 0, head_end = 0;  // key/value heads
  // If not 0, each thread packs keys in passing, for itself, and keeps the last `kept` blocks that
  // it used. 0: the phase packs keys ahead.
  int64_t kept = 0;
  std::vector<PackedSource> packed;
  int64_t packs = 0;  // The number of packed blocks.
  std::vector<Unit> units;
  // Largest first. Packing in passing uses another order if a thread keeps more than one block, or
  // if each head has one item and all items cost the same. Then each thread's list (compute_pool.h)
  // has neighbouring tiles of neighbouring heads.
  std::vector<Item> items;

  // The index of the packed block of (source `p`, key/value head, block).
  int64_t PackOf(const PackedSource& p, int32_t head, int64_t block) const {
    return p.first_pack + (head - head_begin) * (p.block_end - p.block_begin) + block -
           p.block_begin;
  }
};

// A key/value buffer of the call, with the shard-local rows and heads that tasks use. Others are
// never read.
struct KeySource {
  const BlockView* kv = nullptr;
  std::vector<Interval> rows;  // sorted, disjoint
  int32_t head_begin = 0, head_end = 0;
};

struct CallPlan {
  absl::Span<const KernelTask> tasks;
  const CallVisibility* visible = nullptr;
  int group = 1;  // Query heads per key/value head.
  std::vector<KeySource> sources;
  std::vector<int32_t> source_of_task;
};

// Keeps views of `tasks` and `visible`, which must outlive the plan.
CallPlan PlanCall(absl::Span<const KernelTask> tasks, const CallVisibility& visible, int group);

struct PhaseLimits {
  int64_t max_packs = 1;  // Packed blocks that the memory holds.
  int threads = 1;
  // Neighbouring tiles that an item may have. An item has several only if there are enough items,
  // and enough keys for one read to serve more rows.
  int tiles = 1;
  // The thread that runs an item packs its keys. So each item has as many tiles as it may.
  bool passing = false;
  int64_t most_kept = 0;  // Packed blocks that a thread may keep.
};

// Returns the phases of a call, in order.
// - A unit that an item sees no key of is left out, unless rows begin or end with it. Items without
//   units and phases without items are left out too.
// - A phase exceeds max_packs only if one block of the least number of heads that keeps the threads
//   busy does not fit.
// - Units count as progress. If `control` is stopped, the result is incomplete and must not be
//   used.
std::vector<Phase> PlanPhases(const CallPlan& plan, const PhaseLimits& limits,
                              const KernelControl& control = {});

// LargestPhase: packed blocks of the largest phase that packs ahead. MostKept: the largest
// Phase::kept.
int64_t LargestPhase(const std::vector<Phase>& phases);
int64_t MostKept(const std::vector<Phase>& phases);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_CALL_PLAN_H_
