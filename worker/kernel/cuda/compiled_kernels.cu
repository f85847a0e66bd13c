#include <cuda_runtime.h>

#include <vector>

#include "worker/kernel/cuda/compiled_kernels.h"
#include "worker/kernel/cuda/ops/op_block-inl.h"
#include "worker/kernel/cuda/sm80/forward_kernel.cuh"
#include "worker/kernel/cuda/sm80/gradient_kernel.cuh"
#include "worker/kernel/cuda/sm90/encode_map.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_kernel.cuh"
#include "worker/kernel/cuda/sm90/hopper_kernel.cuh"

namespace annulus::cuda {
namespace {

template <OpKind KIND>
__global__ void __launch_bounds__(kThreads) ApplyOp(const __grid_constant__ OpArgs args) {
  PtxGpu gpu;
  const OpBlock<PtxGpu, KIND> block{{{gpu, args}}};
  block.Run(blockIdx.x);
}

const void* FunctionOf(OpKind kind) {
  return WithOp(
      kind, [](auto op) { return reinterpret_cast<const void*>(&ApplyOp<decltype(op)::kKind>); });
}

const void* FunctionOf(const ForwardKind& kind) {
  if (kind.hopper)
    return kind.element == Element::kFp16 ? HopperOfFp16(kind.dim) : HopperOfBf16(kind.dim);
  if (kind.element == Element::kFp32) return ForwardOfFp32(kind);
  return kind.element == Element::kFp16 ? ForwardOfFp16(kind) : ForwardOfBf16(kind);
}

const void* FunctionOf(const GradientKind& kind) {
  if (kind.forward.hopper) {
    return kind.forward.element == Element::kFp16 ? HopperGradientsOfFp16(kind)
                                                  : HopperGradientsOfBf16(kind);
  }
  const bool queries = kind.side == GradientSide::kQueries;
  if (kind.forward.element == Element::kFp32)
    return queries ? QuerySideOfFp32(kind) : KeySideOfFp32(kind);
  if (kind.forward.element == Element::kFp16)
    return queries ? QuerySideOfFp16(kind) : KeySideOfFp16(kind);
  return queries ? QuerySideOfBf16(kind) : KeySideOfBf16(kind);
}

template <class KIND>
cudaError_t AllowShared(const KIND& kind, int64_t bytes, int64_t max_shared_bytes) {
  if (bytes > max_shared_bytes) return cudaSuccess;
  return cudaFuncSetAttribute(FunctionOf(kind), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

int64_t BytesOf(const ForwardKind& kind) {
  return kind.hopper ? HopperSharedBytes(kind.dim) : SharedBytesOf(kind);
}
int64_t BytesOf(const GradientKind& kind) {
  return kind.forward.hopper ? HopperGradientSharedBytes(kind) : SharedBytesOf(kind);
}

cudaError_t AllowGradients(const ForwardKind& forward, int64_t max_shared_bytes) {
  cudaError_t error = cudaSuccess;
  if (forward.hopper && forward.dim > kMaxGradientDim) return error;
  for (const GradientSide side : {GradientSide::kQueries, GradientSide::kKeysAndValues,
                                  GradientSide::kKeys, GradientSide::kValues}) {
    const bool together = side == GradientSide::kKeysAndValues;
    if (side != GradientSide::kQueries && together == (forward.dim > 128)) continue;
    const GradientKind kind = {forward, side};
    if (error == cudaSuccess) error = AllowShared(kind, BytesOf(kind), max_shared_bytes);
  }
  return error;
}

template <class ARGS>
cudaError_t Launch(const void* function, int threads, int64_t shared_bytes, const ARGS& args,
                   int64_t blocks, CudaStream stream) {
  void* arguments[] = {const_cast<ARGS*>(&args)};
  return cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)), dim3(threads), arguments,
                          static_cast<size_t>(shared_bytes), static_cast<cudaStream_t>(stream));
}

// All kinds of the forward kernel.
std::vector<ForwardKind> AllKinds() {
  std::vector<ForwardKind> kinds;
  for (const int dim : {64, 128, 256}) {
    for (const Element element : {Element::kFp32, Element::kFp16, Element::kBf16}) {
      for (const bool changes : {false, true}) kinds.push_back({element, dim, changes});
      if (element != Element::kFp32) kinds.push_back({element, dim, false, true});
    }
  }
  return kinds;
}

class CompiledTable final : public KernelTable {
 public:
  CudaError Prepare(int64_t max_shared_bytes) override {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, FunctionOf(OpKind::kFinish));
    for (const ForwardKind& kind : AllKinds()) {
      if (error == cudaSuccess) error = AllowShared(kind, BytesOf(kind), max_shared_bytes);
      if (error == cudaSuccess) error = AllowGradients(kind, max_shared_bytes);
    }
    return error;
  }

  CudaError EncodeMap(const TensorMapSpec& map, std::byte* to, int* refusal) override {
    return EncodeTensorMap(map, to, refusal);
  }
  CudaError Forward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                    CudaStream stream) override {
    const int threads = kind.hopper ? kHopperThreads : kThreads;
    return Launch(FunctionOf(kind), threads, BytesOf(kind), args, blocks, stream);
  }
  CudaError Gradients(const GradientKind& kind, const GradientArgs& args, int64_t blocks,
                      CudaStream stream) override {
    const int threads = kind.forward.hopper ? kHopperThreads : kThreads;
    return Launch(FunctionOf(kind), threads, BytesOf(kind), args, blocks, stream);
  }
  CudaError Op(const OpArgs& args, int64_t blocks, CudaStream stream) override {
    return Launch(FunctionOf(args.kind), kThreads, 0, args, blocks, stream);
  }
};

}  // namespace

KernelTable* CompiledKernels() {
  static CompiledTable table;
  return &table;
}

}  // namespace annulus::cuda
