#ifndef ANNULUS_TESTS_WORKER_KERNEL_REFERENCE_KERNEL_GRADIENTS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_REFERENCE_KERNEL_GRADIENTS_H_

#include "tests/worker/kernel/block_numbers.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// The two numbers of a row's LSE in a kQGrad block.
struct LseNumbers {
  double lse, rest;
};
inline LseNumbers LseOf(const KernelJob& job, const BlockNumbers& queries, int64_t row,
                        int32_t head) {
  const bool has_rest = job.layout->lse_rest(BlockKind::kQGrad);
  return {queries.Read(row, head, 2)[0], has_rest ? queries.Read(row, head, 4)[0] : 0.0};
}

// One task of gradients in fp64. Accumulators are read and written once. False if it was stopped;
// then nothing was written.
bool AccumulateGradients(const KernelJob& job, const KernelTask& bound,
                         const KernelControl& control);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_REFERENCE_KERNEL_GRADIENTS_H_
