#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_KERNEL_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_KERNEL_CUH_

#include <cuda_runtime.h>

#include "worker/kernel/cuda/sm90/hopper_gpu.cuh"
#include "worker/kernel/cuda/sm90/hopper_gradient_block-inl.h"

namespace annulus::cuda {

// Return the kernel functions that nvcc compiled.
const void* HopperGradientsOfFp16(const GradientKind& kind);
const void* HopperGradientsOfBf16(const GradientKind& kind);

// Empty on architectures other than sm_90a, where it is never launched.
template <class CONFIG>
__global__ void __launch_bounds__(kHopperThreads, 1)
    HopperGradients(const __grid_constant__ GradientArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  PtxHopperGpu gpu;
  const HopperGradientBlock<PtxHopperGpu, CONFIG> block{gpu, args};
  block.Run(blockIdx.x);
#endif
}

template <Element ELEMENT>
const void* HopperGradientsOf(const GradientKind& kind) {
  return WithHopperGradientConfigOf<ELEMENT>(kind, [](auto config) {
    return reinterpret_cast<const void*>(&HopperGradients<decltype(config)>);
  });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_KERNEL_CUH_
