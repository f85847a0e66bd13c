#ifndef ANNULUS_TESTS_GPU_CUDA_HOST_FUNCTION_H_
#define ANNULUS_TESTS_GPU_CUDA_HOST_FUNCTION_H_

#include <functional>
#include <memory>

#include "worker/device/cuda_api.h"

namespace annulus {

// Queues a host function in place of a kernel. It must not call CUDA.
CudaError LaunchOnHost(CudaStream stream, std::function<void()> function);

// The CUDA runtime with pinned host memory as device memory: real queues, events and copies, on
// memory that a test can read.
std::unique_ptr<CudaApi> MakeHostMemoryRuntime();

}  // namespace annulus

#endif  // ANNULUS_TESTS_GPU_CUDA_HOST_FUNCTION_H_
