#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_KERNEL_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_KERNEL_CUH_

#include <cuda_runtime.h>

#include "worker/kernel/cuda/sm80/gradient_block-inl.h"
#include "worker/kernel/cuda/sm80/ptx_gpu.cuh"

namespace annulus::cuda {

// Return the kernel functions that nvcc compiled.
const void* QuerySideOfFp32(const GradientKind& kind);
const void* QuerySideOfFp16(const GradientKind& kind);
const void* QuerySideOfBf16(const GradientKind& kind);
const void* KeySideOfFp32(const GradientKind& kind);
const void* KeySideOfFp16(const GradientKind& kind);
const void* KeySideOfBf16(const GradientKind& kind);

template <class CONFIG>
__global__ void __launch_bounds__(kThreads, 2)
    Gradients(const __grid_constant__ GradientArgs args) {
  PtxGpu gpu;
  const GradientBlock<PtxGpu, CONFIG> block{gpu, args};
  block.Run(blockIdx.x);
}

template <Element ELEMENT>
const void* QuerySideOf(const GradientKind& kind) {
  return WithQuerySideOf<ELEMENT>(kind, [](auto config) {
    return reinterpret_cast<const void*>(&Gradients<decltype(config)>);
  });
}
template <Element ELEMENT>
const void* KeySideOf(const GradientKind& kind) {
  return WithKeySideOf<ELEMENT>(kind, [](auto config) {
    return reinterpret_cast<const void*>(&Gradients<decltype(config)>);
  });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_KERNEL_CUH_
