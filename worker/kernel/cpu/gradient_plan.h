#ifndef ANNULUS_WORKER_KERNEL_CPU_GRADIENT_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CPU_GRADIENT_PLAN_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/visibility.h"

namespace annulus {

// How a gradient call is cut into work that threads can share. An item writes to two accumulators:
// that of its queries and that of its keys. Two items of one round never write to the same rows.
// Rounds run one after the other. So the plan alone sets the order in which an accumulator row sees
// its items, whichever thread comes first.

struct GradientItem {
  int32_t task = 0;
  int32_t kv_head = 0;
  int64_t key_block = 0;  // Shard-local rows [key_block · kKeyBlock, + kKeyBlock).
  // The number of the stripe: stripe_slots query slots (call_plan.h), from shard-local row 0 on.
  int64_t stripe = 0;
};

struct GradientRounds {
  int group = 1;  // Query heads per key/value head.
  // Query slots of a stripe. Tiles of kTileRows count from the stripe's begin.
  int64_t stripe_slots = 0;
  // If true, accumulator rows see the items of a task by increasing block and by increasing stripe.
  bool in_order = false;
};

// Chooses the shape of the items. In a deterministic job stripes are the plan's tiles of queries
// (kFoldTile), which are global, for any number of threads. Otherwise a stripe is as long as keeps
// all threads busy: each item packs its keys, and adds to their accumulators, once.
GradientRounds RoundsOf(const KernelJob& job, absl::Span<const KernelTask> tasks, int threads);

// Calls run(items of a round) for the rounds of a call, in order, until it returns false. Items
// with no visible pair are left out. The time of planning is one look at each row for each class of
// heads, plus the items. Each stripe counts as progress. Once `control` is stopped, it makes no
// more calls.
void ForEachRound(absl::Span<const KernelTask> tasks, const CallVisibility& visible,
                  const GradientRounds& shape, const KernelControl& control,
                  absl::FunctionRef<bool(absl::Span<const GradientItem>)> run);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_GRADIENT_PLAN_H_
