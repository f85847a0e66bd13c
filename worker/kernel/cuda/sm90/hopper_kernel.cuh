#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_KERNEL_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_KERNEL_CUH_

#include <cuda_runtime.h>

#include "worker/kernel/cuda/sm90/hopper_block-inl.h"
#include "worker/kernel/cuda/sm90/hopper_gpu.cuh"

namespace annulus::cuda {

// Return the kernel functions that nvcc compiled.
const void* HopperOfFp16(int dim);
const void* HopperOfBf16(int dim);

// Empty on architectures other than sm_90a, where it is never launched.
template <class CONFIG>
__global__ void __launch_bounds__(kHopperThreads, 1)
    HopperForward(const __grid_constant__ ForwardArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  PtxHopperGpu gpu;
  const HopperBlock<PtxHopperGpu, CONFIG> block{gpu, args};
  block.Run(blockIdx.x);
#endif
}

template <Element ELEMENT>
const void* HopperOf(int dim) {
  return WithHopperConfigOf<ELEMENT>(dim, [](auto config) {
    return reinterpret_cast<const void*>(&HopperForward<decltype(config)>);
  });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_KERNEL_CUH_
