#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_SHAPE_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_SHAPE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Checks one rank's schedule without regard to time: blocks are inside their shards, inputs and
// outputs belong to own shards, transfers and tasks are inside their buffers, kinds and heads
// match, and tasks marked full are full. If OK, every index is in range.
absl::Status CheckShape(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_SHAPE_H_
