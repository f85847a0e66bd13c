#ifndef ANNULUS_WORKER_EXECUTOR_SPLIT_CALLS_H_
#define ANNULUS_WORKER_EXECUTOR_SPLIT_CALLS_H_

#include <cstdint>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/spec/spec.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// The most intervals of one kernel call. A kernel stores the visible intervals of each row of its
// tasks (worker/kernel/visibility.h): 16 bytes each, and twice that while the lists grow.
inline constexpr int64_t kMaxCallIntervals = int64_t{1} << 22;

// Splits a step's tasks into calls of at most `max_intervals` intervals, or of one block of rows if
// that has more. Returns one call if all tasks fit. Cuts tasks between query rows only, at
// multiples of kernel tiles and of the granules of deterministic jobs, so each row and each key
// meets its tasks in the same order as without a split. Pure.
std::vector<std::vector<KernelTask>> SplitCalls(const AttentionSpec& spec, const MaskMap& mask,
                                                std::vector<KernelTask> tasks,
                                                int64_t max_intervals = kMaxCallIntervals);

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_SPLIT_CALLS_H_
