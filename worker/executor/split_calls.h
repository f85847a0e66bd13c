#ifndef ANNULUS_WORKER_EXECUTOR_SPLIT_CALLS_H_
#define ANNULUS_WORKER_EXECUTOR_SPLIT_CALLS_H_

#include <cstdint>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/spec/spec.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Of one kernel call: a kernel holds what each row of its tasks sees (worker/kernel/visibility.h),
// 16 bytes an interval and as much again while they grow.
inline constexpr int64_t kMaxCallIntervals = int64_t{1} << 22;

// A step's tasks as calls, each of which holds at most `max_intervals` intervals, or one block of
// rows: one call where they fit. Tasks are cut by query rows, where kernels' tiles and the granules
// of deterministic jobs end, so every row and every key meets the same in the same order. Pure.
std::vector<std::vector<KernelTask>> SplitCalls(const AttentionSpec& spec, const MaskMap& mask,
                                                std::vector<KernelTask> tasks,
                                                int64_t max_intervals = kMaxCallIntervals);

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_SPLIT_CALLS_H_
