#ifndef ANNULUS_ATTENTION_SCHEDULE_BUILDERS_H_
#define ANNULUS_ATTENTION_SCHEDULE_BUILDERS_H_

#include <cstdint>

#include "attention/schedule/needs.h"
#include "attention/schedule_data.h"

namespace annulus {

// A strategy is one of these: the schedule of one rank. Called only where there are at least two
// ranks and something to attend. A new one is a function here and a row in attention/schedule.cc.
using ScheduleBuilder = RankSchedule (*)(const ScheduleRequest& request, const Needs& needs,
                                         int32_t rank);

// Tasks over own rows, no transfers.
RankSchedule BuildOneRank(const ScheduleRequest& request, const Needs& needs, int32_t rank);

// Ring pass-KV. A shard's keys visit its stops, the ranks after its owner that need some of them,
// in rank order: used by the rank at distance d in step d, sent on while in use, and only the rows
// that the stops from there on need.
RankSchedule BuildRingPassKv(const ScheduleRequest& request, const Needs& needs, int32_t rank);

// Each rank receives exactly the key rows it sees and lacks, straight from their owners. Rotate:
// from the owner d ranks before it in step d − 1, used in step d. All-gather: all in step 0, used
// in step 1. Halo is all-gather by another name: a bounded mask makes the needs narrow.
RankSchedule BuildRotateKv(const ScheduleRequest& request, const Needs& needs, int32_t rank);
RankSchedule BuildAllGatherKv(const ScheduleRequest& request, const Needs& needs, int32_t rank);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_BUILDERS_H_
