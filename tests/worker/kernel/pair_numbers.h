#ifndef ANNULUS_TESTS_WORKER_KERNEL_PAIR_NUMBERS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_PAIR_NUMBERS_H_

#include <cstdint>

#include "worker/kernel/attention_kernel.h"

namespace annulus {

// What a task's kPairs say of a shard-local query row and key row: 0 where the job has none.

// What is added to scores of the row before all else.
double OffsetOf(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head);
// The bias of a pair; −inf where that or the bit mask hides it.
double BiasOf(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head,
              int64_t key);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_PAIR_NUMBERS_H_
