#ifndef ANNULUS_WORKER_WATCHED_LANES_H_
#define ANNULUS_WORKER_WATCHED_LANES_H_

#include <functional>
#include <vector>

#include "worker/agent/agent.h"
#include "worker/lane/lane.h"
#include "worker/lane/solo_lane.h"
#include "worker/lane/watchdog.h"

namespace annulus {

// What a worker's watchdog looks at: its lanes, and its agent, which has a turn every second. None
// is owned; all outlive what is returned.
std::vector<std::function<LaneSight()>> WatchedLanes(Lane* lane, SoloLane* solo, Agent* agent);

}  // namespace annulus

#endif  // ANNULUS_WORKER_WATCHED_LANES_H_
