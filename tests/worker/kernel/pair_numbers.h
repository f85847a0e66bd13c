#ifndef ANNULUS_TESTS_WORKER_KERNEL_PAIR_NUMBERS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_PAIR_NUMBERS_H_

#include <cstdint>

#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Values of a task's kPairs for a shard-local query row and key row: 0 if the job has none.

// The offset that is first added to scores of the row.
double OffsetOf(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head);
// The bias of a pair; −inf if the bias or the bit mask hides it.
double BiasOf(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head,
              int64_t key);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_PAIR_NUMBERS_H_
