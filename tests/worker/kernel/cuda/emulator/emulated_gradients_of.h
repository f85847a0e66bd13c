#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GRADIENTS_OF_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GRADIENTS_OF_H_

#include <string>

#include "tests/worker/kernel/cuda/emulator/emulated_gpu.h"
#include "tests/worker/kernel/cuda/emulator/emulated_gradients.h"
#include "worker/kernel/cuda/sm80/gradient_block-inl.h"

namespace annulus::cuda {

template <Element ELEMENT>
std::string EmulateGradientsOf(const GradientKind& kind, const GradientArgs& args, int64_t number,
                               EmulatedBlock* block) {
  return WithGradientConfigOf<ELEMENT>(kind, [&](auto config) {
    using Config = decltype(config);
    return block->Run(number, Config::kSharedBytes, [&](int thread) {
      EmulatedGpu gpu{block, thread};
      const GradientBlock<EmulatedGpu, Config> gradients{gpu, args};
      gradients.Run(number);
    });
  });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GRADIENTS_OF_H_
