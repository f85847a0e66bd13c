#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_FORWARD_OF_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_FORWARD_OF_H_

#include <string>

#include "tests/worker/kernel/cuda/emulator/emulated_forward.h"
#include "tests/worker/kernel/cuda/emulator/emulated_gpu.h"
#include "worker/kernel/cuda/sm80/forward_block-inl.h"

namespace annulus::cuda {

template <Element ELEMENT>
std::string EmulateElement(const ForwardKind& kind, const ForwardArgs& args, int64_t number,
                           EmulatedBlock* block) {
  return WithConfigOf<ELEMENT>(kind, [&](auto config) {
    using Config = decltype(config);
    return block->Run(number, Config::kSharedBytes, [&](int thread) {
      EmulatedGpu gpu{block, thread};
      const ForwardBlock<EmulatedGpu, Config> forward{gpu, args};
      forward.Run(number);
    });
  });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_FORWARD_OF_H_
