#ifndef ANNULUS_WORKER_KERNEL_CUDA_ENCODE_MAP_H_
#define ANNULUS_WORKER_KERNEL_CUDA_ENCODE_MAP_H_

#include <cstddef>

#include "worker/device/cuda_api.h"
#include "worker/kernel/cuda/tensor_map.h"

namespace annulus::cuda {

// Writes the 128 bytes that sm_90 takes for a map, at a multiple of 64, by the driver's
// cuTensorMapEncodeTiled: cudaErrorInvalidValue for what it refuses, another error where there is
// no driver that has it. Thread-safe.
CudaError EncodeTensorMap(const TensorMapSpec& map, std::byte* to);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_ENCODE_MAP_H_
