#include <cuda_runtime.h>

#include "worker/kernel/cuda/compiled_kernels.h"
#include "worker/kernel/cuda/op_block.h"
#include "worker/kernel/cuda/ptx_gpu.cuh"

namespace annulus::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) Op(const __grid_constant__ OpArgs args) {
  PtxGpu gpu;
  const OpBlock<PtxGpu> block{{gpu, args}};
  block.Run(blockIdx.x);
}

template <class ARGS>
cudaError_t Launch(const void* function, int64_t shared_bytes, const ARGS& args, int64_t blocks,
                   void* stream) {
  void* arguments[] = {const_cast<ARGS*>(&args)};
  return cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), arguments,
                          static_cast<size_t>(shared_bytes), static_cast<cudaStream_t>(stream));
}

}  // namespace

CompiledForward CompiledForwardOf(const ForwardKind& kind) {
  if (kind.element == Element::kFp32) return CompiledFp32(kind);
  return kind.element == Element::kFp16 ? CompiledFp16(kind) : CompiledBf16(kind);
}

int PrepareKernels(int64_t max_shared_bytes) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&Op));
  for (const Element element : {Element::kFp32, Element::kFp16, Element::kBf16}) {
    for (const int dim : {64, 128, 256}) {
      for (const bool changes : {false, true}) {
        if (error != cudaSuccess) return error;
        const CompiledForward compiled = CompiledForwardOf({element, dim, changes});
        if (compiled.shared_bytes > max_shared_bytes) continue;
        error = cudaFuncSetAttribute(compiled.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(compiled.shared_bytes));
      }
    }
  }
  return error;
}

int LaunchForward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks, void* stream) {
  const CompiledForward compiled = CompiledForwardOf(kind);
  return Launch(compiled.function, compiled.shared_bytes, args, blocks, stream);
}

int LaunchOp(const OpArgs& args, int64_t blocks, void* stream) {
  return Launch(reinterpret_cast<const void*>(&Op), 0, args, blocks, stream);
}

}  // namespace annulus::cuda
