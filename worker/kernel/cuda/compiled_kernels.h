#ifndef ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_

#include "worker/kernel/cuda/forward_config.h"
#include "worker/kernel/cuda/kernel_table.h"

namespace annulus::cuda {

// What nvcc made of the kernels: for sm_80, for sm_90a, and as PTX for what comes later.
KernelTable* CompiledKernels();

// Its members, for who keeps functions.
inline CudaError PrepareKernels(int64_t max_shared_bytes) {
  return CompiledKernels()->Prepare(max_shared_bytes);
}
inline CudaError LaunchForward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                               CudaStream stream) {
  return CompiledKernels()->Forward(kind, args, blocks, stream);
}
inline CudaError LaunchOp(const OpArgs& args, int64_t blocks, CudaStream stream) {
  return CompiledKernels()->Op(args, blocks, stream);
}

struct CompiledForward {
  int64_t shared_bytes = 0;  // Of a block.
};
inline CompiledForward CompiledForwardOf(const ForwardKind& kind) { return {SharedBytesOf(kind)}; }

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_
