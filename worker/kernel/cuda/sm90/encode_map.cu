#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstring>

#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/sm90/encode_map.h"

namespace annulus::cuda {
namespace {

using Encode = PFN_cuTensorMapEncodeTiled_v12000;

struct Driver {
  cudaError_t error = cudaSuccess;
  void* encode = nullptr;
};

// The program does not link a driver library.
Driver FindDriver() {
  Driver driver;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  driver.error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &driver.encode, 12000,
                                                  cudaEnableDefault, &found);
  if (driver.error == cudaSuccess &&
      (found != cudaDriverEntryPointSuccess || driver.encode == nullptr))
    driver.error = cudaErrorNotSupported;
  return driver;
}

}  // namespace

CudaError EncodeTensorMap(const TensorMapSpec& map, std::byte* to, int* refusal) {
  static const Driver driver = FindDriver();
  *refusal = 0;
  if (driver.error != cudaSuccess) return driver.error;
  return EncodeTensorMapBy(driver.encode, map, to, refusal);
}

CudaError EncodeTensorMapBy(void* encode, const TensorMapSpec& map, std::byte* to, int* refusal) {
  static_assert(sizeof(CUtensorMap) == kMapBytes);
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(map.columns),
                             static_cast<cuuint64_t>(map.heads), static_cast<cuuint64_t>(map.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(map.head_bytes),
                                static_cast<cuuint64_t>(map.row_bytes)};
  const cuuint32_t box[] = {kPanelColumns, static_cast<cuuint32_t>(map.box_heads),
                            static_cast<cuuint32_t>(map.box_rows)};
  const cuuint32_t steps[] = {1, 1, 1};
  // The type's bits do not matter: elements outside are 0 in any type.
  CUtensorMap made;  // Aligned to 64 as the driver requires; `to` may not be.
  const CUresult result = reinterpret_cast<Encode>(encode)(
      &made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<std::byte*>(map.base), dims, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  *refusal = static_cast<int>(result);
  if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
  std::memcpy(to, &made, kMapBytes);
  return cudaSuccess;
}

}  // namespace annulus::cuda
