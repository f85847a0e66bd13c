#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_ENCODE_MAP_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_ENCODE_MAP_H_

#include <cstddef>

#include "worker/device/cuda_api.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// Encodes a tensor map by the driver's cuTensorMapEncodeTiled: writes the 128 bytes of sm_90's
// format to `to`, at any alignment. Thread-safe. Errors:
// - cudaErrorInvalidValue if the driver refuses the map; `refusal` is its CUresult.
// - another error, with `refusal` 0, if there is no driver with this function.
CudaError EncodeTensorMap(const TensorMapSpec& map, std::byte* to, int* refusal);

// The same by `encode`: cuTensorMapEncodeTiled, or a fake of it.
CudaError EncodeTensorMapBy(void* encode, const TensorMapSpec& map, std::byte* to, int* refusal);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_ENCODE_MAP_H_
