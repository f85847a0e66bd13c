#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GRADIENTS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GRADIENTS_H_

#include <string>

#include "tests/worker/kernel/cuda/emulator/emulated_block.h"
#include "worker/kernel/cuda/launch/gradient_args.h"

namespace annulus::cuda {

// Runs one block of the gradients' kernel for inputs of a type, like EmulatedForward.
using EmulatedGradients = std::string (*)(const GradientKind& kind, const GradientArgs& args,
                                          int64_t number, EmulatedBlock* block);
std::string EmulateGradientsOfFp32(const GradientKind& kind, const GradientArgs& args,
                                   int64_t number, EmulatedBlock* block);
std::string EmulateGradientsOfFp16(const GradientKind& kind, const GradientArgs& args,
                                   int64_t number, EmulatedBlock* block);
std::string EmulateGradientsOfBf16(const GradientKind& kind, const GradientArgs& args,
                                   int64_t number, EmulatedBlock* block);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GRADIENTS_H_
