#ifndef ANNULUS_WORKER_WATCHED_LANES_H_
#define ANNULUS_WORKER_WATCHED_LANES_H_

#include <functional>
#include <vector>

#include "worker/agent/agent.h"
#include "worker/lane/lane.h"
#include "worker/lane/solo_lane.h"
#include "worker/lane/watchdog.h"

namespace annulus {

// The objects that the worker's watchdog observes: its lanes, and its agent, which runs a turn
// every second. Borrows all arguments; they must outlive the result.
std::vector<std::function<LaneSight()>> WatchedLanes(Lane* lane, SoloLane* solo, Agent* agent);

}  // namespace annulus

#endif  // ANNULUS_WORKER_WATCHED_LANES_H_
