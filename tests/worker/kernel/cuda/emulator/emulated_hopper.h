#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_HOPPER_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_HOPPER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tests/worker/kernel/cuda/emulator/memory_checks.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// In the emulator, a map is its TensorMapSpec.
void EmulateMaps(absl::Span<const TensorMapSpec> maps, std::byte* to);

// Runs a launch of the sm_90a kernel with concurrent blocks. The seed determines their progress.
// Returns the first fault and the seed, or "".
std::string EmulateHopper(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                          GlobalMemory* memory, uint64_t seed);
std::string EmulateHopperGradients(const GradientKind& kind, const GradientArgs& args,
                                   int64_t blocks, GlobalMemory* memory, uint64_t seed);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_HOPPER_H_
