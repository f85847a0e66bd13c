#ifndef ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_H_
#define ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {

// Runs a group's schedules in fp64 in the memory of their placements. Ranks drift apart as far as
// transfers allow: at each moment one possible event, drawn by `seed`, happens. A rank starts a
// step, runs its next task or ends the step, or one row of a transfer moves. The n-th send from a
// to b matches the n-th receive from a at b in any step, as in a communicator. Memory starts as
// NaN. OK if every output equals attention by its formula; otherwise the error.
absl::Status RunDrifting(const BuiltCase& built, const std::vector<RankSchedule>& ranks,
                         const std::vector<ArenaPlan>& placements, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_H_
