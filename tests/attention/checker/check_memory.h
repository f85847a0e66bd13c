#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_MEMORY_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Memory of one rank: every use of a buffer inside its lifetime, inputs alive from the start and
// outputs to the end, room for every block, and no two buffers that are alive together share a
// byte. Buffers `in_staging` (empty: none are) are inputs that nobody writes to and outputs, of
// which nothing is sent or received, and have no slot; no accumulator is.
absl::Status CheckMemory(int32_t rank, const RankSchedule& schedule, const ArenaPlan& placement,
                         const BlockLayout& layout, const std::vector<bool>& in_staging);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_MEMORY_H_
