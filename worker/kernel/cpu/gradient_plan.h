#ifndef ANNULUS_WORKER_KERNEL_CPU_GRADIENT_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CPU_GRADIENT_PLAN_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/visibility.h"

namespace annulus {

// How a call of gradients is cut into work that threads can share. An item writes to two
// accumulators, those of its queries and those of its keys, and two items of one round never write
// to the same rows. Rounds run one after another, so an accumulator row sees its items in an order
// that is the plan's, whichever thread comes first.

struct GradientItem {
  int32_t task = 0;
  int32_t kv_head = 0;
  int64_t key_block = 0;  // Shard-local rows [key_block · kKeyBlock, + kKeyBlock).
  int64_t stripe = 0;  // Of so many query slots (call_plan.h), anchored at shard-local multiples.
};

struct GradientRounds {
  int group = 1;             // Query heads of a key/value head.
  int64_t stripe_slots = 0;  // In tiles of kTileRows, anchored where the stripe begins.
  // Accumulator rows see the items of a task by increasing block and by increasing stripe.
  bool in_order = false;
};

// Of a deterministic job: stripes are the plan's tiles of queries (kFoldTile), which are global
// ones, for any number of threads. Else as long as keeps so many threads busy: each item packs its
// keys and adds to their accumulators once.
GradientRounds RoundsOf(const KernelJob& job, absl::Span<const KernelTask> tasks, int threads);

// Calls run(items of a round) for the rounds of a call, in order, until it returns false. Items in
// which nothing is visible are left out. To plan takes one look at each row for each class of
// heads, and the time of what it deals; each stripe counts as progress, and told to stop it calls
// no more.
void ForEachRound(absl::Span<const KernelTask> tasks, const CallVisibility& visible,
                  const GradientRounds& shape, const KernelControl& control,
                  absl::FunctionRef<bool(absl::Span<const GradientItem>)> run);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_GRADIENT_PLAN_H_
