#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_KERNEL_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_KERNEL_CUH_

#include <cuda_runtime.h>

#include "worker/kernel/cuda/sm80/forward_block-inl.h"
#include "worker/kernel/cuda/sm80/ptx_gpu.cuh"

namespace annulus::cuda {

// Return the kernel functions that nvcc compiled.
const void* ForwardOfFp32(const ForwardKind& kind);
const void* ForwardOfFp16(const ForwardKind& kind);
const void* ForwardOfBf16(const ForwardKind& kind);

template <class CONFIG>
__global__ void __launch_bounds__(kThreads, 2) Forward(const __grid_constant__ ForwardArgs args) {
  PtxGpu gpu;
  const ForwardBlock<PtxGpu, CONFIG> block{gpu, args};
  block.Run(blockIdx.x);
}

template <Element ELEMENT>
const void* ForwardOf(const ForwardKind& kind) {
  return WithConfigOf<ELEMENT>(
      kind, [](auto config) { return reinterpret_cast<const void*>(&Forward<decltype(config)>); });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_KERNEL_CUH_
