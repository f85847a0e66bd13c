#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_MEMORY_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Checks the memory of one rank: each use of a buffer is within its lifetime; inputs live from the
// start and outputs to the end; each block has room; no two live buffers overlap. Buffers
// `in_staging` (empty: none) have no slot. They are inputs that nothing writes, or outputs, and no
// transfer uses them. No accumulator is among them.
absl::Status CheckMemory(int32_t rank, const RankSchedule& schedule, const ArenaPlan& placement,
                         const BlockLayout& layout, const std::vector<bool>& in_staging);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_CHECK_MEMORY_H_
