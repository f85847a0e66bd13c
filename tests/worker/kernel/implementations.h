#ifndef ANNULUS_TESTS_WORKER_KERNEL_IMPLEMENTATIONS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_IMPLEMENTATIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Implementations of AttentionKernel, by name: "reference" (fp64), "amx", "avx512bf16", "avx512",
// "avx2", "portable", and "wide" (the AVX-512 path's loops on the compiler's vectors).
std::vector<std::string> KernelNames();

// True if suites run only a sample of their cases.
bool KernelsAreSlow();

// nullptr for a path that this machine lacks. Packing memory is small, so that the tests' calls run
// in several phases.
std::unique_ptr<AttentionKernel> MakeKernel(const std::string& name, int threads);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_IMPLEMENTATIONS_H_
