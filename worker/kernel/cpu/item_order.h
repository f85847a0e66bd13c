#ifndef ANNULUS_WORKER_KERNEL_CPU_ITEM_ORDER_H_
#define ANNULUS_WORKER_KERNEL_CPU_ITEM_ORDER_H_

#include <cstdint>

#include "worker/kernel/cpu/call_plan.h"

namespace annulus {

// From this mean number of keys per row on, it pays to read keys for as many tiles at once as an
// item may have.
inline constexpr int64_t kManyKeys = 2048;
// Tiles that an item joins whatever its rows read, where threads keep packed blocks. With more, the
// blocks and rows would not fit in a core's L2 cache.
inline constexpr int kTilesBesideKept = 3;

// Joins neighbouring items of a phase where that pays, and sorts them into the order in which they
// run (Phase::items). Requires: items are in the order of their tiles. A pure function.
void OrderItems(const PhaseLimits& limits, Phase* phase);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ITEM_ORDER_H_
