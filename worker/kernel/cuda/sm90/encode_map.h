#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_ENCODE_MAP_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_ENCODE_MAP_H_

#include <cstddef>

#include "worker/device/cuda_api.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// Writes the 128 bytes that sm_90 takes for a map, to any address, by the driver's
// cuTensorMapEncodeTiled: cudaErrorInvalidValue for what it refuses, with its CUresult in
// `refusal`, another error and 0 where there is no driver that has it. Thread-safe.
CudaError EncodeTensorMap(const TensorMapSpec& map, std::byte* to, int* refusal);

// The same by `encode`: cuTensorMapEncodeTiled, or a stand-in for it.
CudaError EncodeTensorMapBy(void* encode, const TensorMapSpec& map, std::byte* to, int* refusal);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_ENCODE_MAP_H_
