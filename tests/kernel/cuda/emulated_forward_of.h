#ifndef ANNULUS_TESTS_KERNEL_CUDA_EMULATED_FORWARD_OF_H_
#define ANNULUS_TESTS_KERNEL_CUDA_EMULATED_FORWARD_OF_H_

#include <string>

#include "tests/kernel/cuda/emulated_forward.h"
#include "tests/kernel/cuda/emulated_gpu.h"
#include "worker/kernel/cuda/forward_block.h"

namespace annulus::cuda {

template <class CONFIG>
std::string EmulateOne(const ForwardArgs& args, int64_t number, EmulatedBlock* block) {
  return block->Run(number, CONFIG::kSharedBytes, [&](int thread) {
    EmulatedGpu gpu{block, thread};
    const ForwardBlock<EmulatedGpu, CONFIG> forward{gpu, args};
    forward.Run(number);
  });
}

template <Element ELEMENT, int DIM>
std::string EmulateDim(bool changes, const ForwardArgs& args, int64_t number,
                       EmulatedBlock* block) {
  if (changes) return EmulateOne<ForwardConfig<ELEMENT, DIM, true>>(args, number, block);
  return EmulateOne<ForwardConfig<ELEMENT, DIM, false>>(args, number, block);
}

template <Element ELEMENT>
std::string EmulateElement(const ForwardKind& kind, const ForwardArgs& args, int64_t number,
                           EmulatedBlock* block) {
  if (kind.dim == 64) return EmulateDim<ELEMENT, 64>(kind.changes, args, number, block);
  if (kind.dim == 128) return EmulateDim<ELEMENT, 128>(kind.changes, args, number, block);
  return EmulateDim<ELEMENT, 256>(kind.changes, args, number, block);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_KERNEL_CUDA_EMULATED_FORWARD_OF_H_
