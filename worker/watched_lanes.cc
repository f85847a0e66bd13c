#include "worker/watched_lanes.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

// Added to the stall budget: turns are up to a second apart, and the watchdog does not subtract
// stops of the process of up to 5 s.
constexpr absl::Duration kAgentPatience = absl::Seconds(10);

LaneSight SightOf(const char* lane, LaneGauge* gauge) {
  const LaneGauge::Reading reading = gauge->Read();
  const ShardId& shard = reading.shard;
  const std::string what =
      absl::StrCat(reading.what, " of job ", shard.job_id, ", attempt ", shard.attempt, ", rank ",
                   shard.rank, ", segment ", reading.segment);
  return LaneSight{lane,         reading.busy,    what, gauge->steps(), std::nullopt,
                   shard.job_id, reading.patience};
}

}  // namespace

std::vector<std::function<LaneSight()>> WatchedLanes(Lane* lane, SoloLane* solo, Agent* agent) {
  return {[lane] {
            LaneSight group = SightOf("group", lane->gauge());
            group.progress += lane->groups().bytes_received();
            group.aborting = lane->groups().OldestAbort();
            return group;
          },
          [lane] { return SightOf("side", lane->side_gauge()); },
          [solo] { return SightOf("solo", solo->gauge()); },
          [agent] {
            return LaneSight{"agent",      true, "a turn",      agent->turns(),
                             std::nullopt, "",   kAgentPatience};
          }};
}

}  // namespace annulus
