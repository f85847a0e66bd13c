#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_RUN_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_RUN_H_

#include <cstdint>
#include <string>

#include "tests/worker/kernel/cuda/emulator/memory_checks.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/op_args.h"

namespace annulus::cuda {

// Runs a launch, block by block. Returns the first fault, or "".
std::string EmulateForward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                           GlobalMemory* memory);
std::string EmulateGradients(const GradientKind& kind, const GradientArgs& args, int64_t blocks,
                             GlobalMemory* memory);
std::string EmulateOp(const OpArgs& args, int64_t blocks, GlobalMemory* memory);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_RUN_H_
