#ifndef ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_H_
#define ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {

// Runs a group's schedules in fp64 on the memory that their placements give, ranks drifting apart
// as far as their transfers allow: at every moment one possible thing happens, drawn by `seed` — a
// rank starts a step, runs its next task or ends the step, or one row of a transfer moves. The n-th
// send from a to b meets the n-th receive from a at b, whatever their steps, as in a communicator.
// Memory starts as NaN. OK when every output equals attention computed from its formula; else what
// went wrong.
absl::Status RunDrifting(const BuiltCase& built, const std::vector<RankSchedule>& ranks,
                         const std::vector<ArenaPlan>& placements, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_H_
