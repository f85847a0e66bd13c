#ifndef ANNULUS_WORKER_KERNEL_GRADIENT_PLAN_H_
#define ANNULUS_WORKER_KERNEL_GRADIENT_PLAN_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/tile_isa.h"
#include "worker/kernel/visibility.h"

namespace annulus {

// How a call of gradients is cut into work that threads can share. An item writes to two
// accumulators, those of its queries and those of its keys, and two items of one round never write
// to the same rows. Rounds run one after another, so an accumulator row sees its items in an order
// that is the plan's: the same for any number of threads.

// Tiles of query slots (call_plan.h) of one item, anchored at multiples.
inline constexpr int64_t kStripeTiles = 4;

struct GradientItem {
  int32_t task = 0;
  int32_t kv_head = 0;
  int64_t key_block = 0;  // Shard-local rows [key_block · kKeyBlock, + kKeyBlock).
  int64_t stripe = 0;     // Query slots [stripe · kStripeTiles · kTileRows, + the same).
};

// Calls run(items of a round) for the rounds of a call, in order, until it returns false. Items in
// which nothing is visible are left out. `group`: query heads of a key/value head.
void ForEachRound(absl::Span<const KernelTask> tasks, const CallVisibility& visible, int group,
                  absl::FunctionRef<bool(absl::Span<const GradientItem>)> run);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_GRADIENT_PLAN_H_
