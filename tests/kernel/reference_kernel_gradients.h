#ifndef ANNULUS_TESTS_KERNEL_REFERENCE_KERNEL_GRADIENTS_H_
#define ANNULUS_TESTS_KERNEL_REFERENCE_KERNEL_GRADIENTS_H_

#include "worker/kernel/attention_kernel.h"

namespace annulus {

// One task of gradients in fp64: accumulators are read and written once. False when it was told to
// stop; then nothing was written.
bool AccumulateGradients(const KernelJob& job, const KernelTask& bound,
                         const KernelControl& control);

}  // namespace annulus

#endif  // ANNULUS_TESTS_KERNEL_REFERENCE_KERNEL_GRADIENTS_H_
