#include <cuda_runtime.h>

#include "worker/kernel/cuda/compiled_kernels.h"
#include "worker/kernel/cuda/forward_kernel.cuh"
#include "worker/kernel/cuda/op_block.h"

namespace annulus::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) ApplyOp(const __grid_constant__ OpArgs args) {
  PtxGpu gpu;
  const OpBlock<PtxGpu> block{{gpu, args}};
  block.Run(blockIdx.x);
}

const void* FunctionOf(const ForwardKind& kind) {
  if (kind.element == Element::kFp32) return ForwardOfFp32(kind);
  return kind.element == Element::kFp16 ? ForwardOfFp16(kind) : ForwardOfBf16(kind);
}

template <class ARGS>
cudaError_t Launch(const void* function, int64_t shared_bytes, const ARGS& args, int64_t blocks,
                   CudaStream stream) {
  void* arguments[] = {const_cast<ARGS*>(&args)};
  return cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), arguments,
                          static_cast<size_t>(shared_bytes), static_cast<cudaStream_t>(stream));
}

class CompiledTable final : public KernelTable {
 public:
  CudaError Prepare(int64_t max_shared_bytes) override {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&ApplyOp));
    for (const Element element : {Element::kFp32, Element::kFp16, Element::kBf16}) {
      for (const int dim : {64, 128, 256}) {
        for (const bool changes : {false, true}) {
          if (error != cudaSuccess) return error;
          const ForwardKind kind = {element, dim, changes};
          const int64_t bytes = SharedBytesOf(kind);
          if (bytes > max_shared_bytes) continue;
          error =
              cudaFuncSetAttribute(FunctionOf(kind), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(bytes));
        }
      }
    }
    return error;
  }

  CudaError Forward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                    CudaStream stream) override {
    return Launch(FunctionOf(kind), SharedBytesOf(kind), args, blocks, stream);
  }
  CudaError Op(const OpArgs& args, int64_t blocks, CudaStream stream) override {
    return Launch(reinterpret_cast<const void*>(&ApplyOp), 0, args, blocks, stream);
  }
};

}  // namespace

KernelTable* CompiledKernels() {
  static CompiledTable table;
  return &table;
}

}  // namespace annulus::cuda
