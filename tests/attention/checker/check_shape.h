#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_SHAPE_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_SHAPE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// What one rank's schedule must be before time plays a part: blocks inside their shards, inputs and
// outputs of own shards, transfers and tasks inside their buffers, kinds and heads that fit each
// other, tasks marked full that are full. Every index is in range when it returns OK.
absl::Status CheckShape(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_SHAPE_H_
