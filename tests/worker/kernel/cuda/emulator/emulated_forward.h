#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_FORWARD_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_FORWARD_H_

#include <string>

#include "tests/worker/kernel/cuda/emulator/emulated_block.h"
#include "worker/kernel/cuda/launch/forward_args.h"

namespace annulus::cuda {

// Runs one block of the forward kernel for inputs of a type. The kind gives dimension and changes.
// Returns the first fault, or "".
using EmulatedForward = std::string (*)(const ForwardKind& kind, const ForwardArgs& args,
                                        int64_t number, EmulatedBlock* block);
std::string EmulateFp32(const ForwardKind& kind, const ForwardArgs& args, int64_t number,
                        EmulatedBlock* block);
std::string EmulateFp16(const ForwardKind& kind, const ForwardArgs& args, int64_t number,
                        EmulatedBlock* block);
std::string EmulateBf16(const ForwardKind& kind, const ForwardArgs& args, int64_t number,
                        EmulatedBlock* block);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_FORWARD_H_
