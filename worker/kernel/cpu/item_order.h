#ifndef ANNULUS_WORKER_KERNEL_CPU_ITEM_ORDER_H_
#define ANNULUS_WORKER_KERNEL_CPU_ITEM_ORDER_H_

#include <cstdint>

#include "worker/kernel/cpu/call_plan.h"

namespace annulus {

// Of so many keys, in a row's mean, it pays to read them for as many tiles at once as an item may
// have.
inline constexpr int64_t kManyKeys = 2048;
// Tiles that join whatever they read, where threads keep the blocks that they meet: not more, so
// that the blocks stay in a core's second cache beside the rows.
inline constexpr int kTilesBesideKept = 3;

// Joins neighbouring items of a phase, which stand in the order of their tiles, where that pays,
// and puts them into the order in which they run (Phase::items). A pure function.
void OrderItems(const PhaseLimits& limits, Phase* phase);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ITEM_ORDER_H_
