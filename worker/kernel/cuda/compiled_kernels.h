#ifndef ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_

#include "worker/kernel/cuda/kernel_table.h"

namespace annulus::cuda {

// What nvcc made of the kernels: for sm_80, for sm_90a, and as PTX for what comes later.
KernelTable* CompiledKernels();

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_
