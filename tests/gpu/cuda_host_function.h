#ifndef ANNULUS_TESTS_GPU_CUDA_HOST_FUNCTION_H_
#define ANNULUS_TESTS_GPU_CUDA_HOST_FUNCTION_H_

#include <functional>
#include <memory>

#include "worker/device/cuda_api.h"

namespace annulus {

// Queues a function of the host, which may call nothing of CUDA, where a kernel would be.
CudaError LaunchOnHost(CudaStream stream, std::function<void()> function);

// CUDA's runtime, whose device memory is pinned memory of the host: the GPU's queues, events and
// copies on memory that a test can read.
std::unique_ptr<CudaApi> MakeHostMemoryRuntime();

}  // namespace annulus

#endif  // ANNULUS_TESTS_GPU_CUDA_HOST_FUNCTION_H_
