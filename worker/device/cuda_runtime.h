#ifndef ANNULUS_WORKER_DEVICE_CUDA_RUNTIME_H_
#define ANNULUS_WORKER_DEVICE_CUDA_RUNTIME_H_

#include "worker/device/cuda_api.h"

namespace annulus {

// The linked CUDA runtime. Works without a driver too.
CudaApi* CudaRuntime();

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_CUDA_RUNTIME_H_
