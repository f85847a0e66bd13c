#ifndef ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_

#include <cstdint>

#include "worker/kernel/cuda/forward_args.h"
#include "worker/kernel/cuda/op_args.h"

namespace annulus::cuda {

// What nvcc made of the kernels. Errors are cudaError_t as a number, 0 is success; streams are
// cudaStream_t. All act on the thread's current device.

// A kernel's function, and the shared memory that a block of it takes.
struct CompiledForward {
  const void* function = nullptr;
  int64_t shared_bytes = 0;
};
CompiledForward CompiledFp32(const ForwardKind& kind);
CompiledForward CompiledFp16(const ForwardKind& kind);
CompiledForward CompiledBf16(const ForwardKind& kind);
CompiledForward CompiledForwardOf(const ForwardKind& kind);

// Loads every kernel to the device, so that none is loaded while others run, but for those that
// take more shared memory than `max_shared_bytes`.
int PrepareKernels(int64_t max_shared_bytes);

int LaunchForward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks, void* stream);
int LaunchOp(const OpArgs& args, int64_t blocks, void* stream);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_
