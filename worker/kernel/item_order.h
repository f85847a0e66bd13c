#ifndef ANNULUS_WORKER_KERNEL_ITEM_ORDER_H_
#define ANNULUS_WORKER_KERNEL_ITEM_ORDER_H_

#include "worker/kernel/call_plan.h"

namespace annulus {

// Joins neighbouring items of a phase, which stand in the order of their tiles, where that pays,
// and puts them into the order in which they run (Phase::items). A pure function.
void OrderItems(const PhaseLimits& limits, Phase* phase);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_ITEM_ORDER_H_
