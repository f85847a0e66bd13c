#ifndef ANNULUS_WORKER_KERNEL_CUDA_FORWARD_KERNEL_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_FORWARD_KERNEL_CUH_

#include <cuda_runtime.h>

#include "worker/kernel/cuda/compiled_kernels.h"
#include "worker/kernel/cuda/forward_block.h"
#include "worker/kernel/cuda/ptx_gpu.cuh"

namespace annulus::cuda {

template <class CONFIG>
__global__ void __launch_bounds__(kThreads) Forward(const __grid_constant__ ForwardArgs args) {
  PtxGpu gpu;
  const ForwardBlock<PtxGpu, CONFIG> block{gpu, args};
  block.Run(blockIdx.x);
}

template <class CONFIG>
CompiledForward CompiledOf() {
  return {reinterpret_cast<const void*>(&Forward<CONFIG>), CONFIG::kSharedBytes};
}

template <Element ELEMENT, int DIM>
CompiledForward CompiledDim(bool changes) {
  return changes ? CompiledOf<ForwardConfig<ELEMENT, DIM, true>>()
                 : CompiledOf<ForwardConfig<ELEMENT, DIM, false>>();
}

template <Element ELEMENT>
CompiledForward CompiledElement(const ForwardKind& kind) {
  if (kind.dim == 64) return CompiledDim<ELEMENT, 64>(kind.changes);
  if (kind.dim == 128) return CompiledDim<ELEMENT, 128>(kind.changes);
  return CompiledDim<ELEMENT, 256>(kind.changes);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_FORWARD_KERNEL_CUH_
