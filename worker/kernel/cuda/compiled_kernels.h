#ifndef ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_

#include "worker/kernel/cuda/kernel_table.h"

namespace annulus::cuda {

// The kernels that nvcc compiled: for sm_80, for sm_90a, and as PTX for later architectures. The
// table is static; the caller does not own it.
KernelTable* CompiledKernels();

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_COMPILED_KERNELS_H_
