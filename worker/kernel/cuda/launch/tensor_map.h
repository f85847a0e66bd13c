#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TENSOR_MAP_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TENSOR_MAP_H_

#include <cstddef>
#include <cstdint>

namespace annulus::cuda {

// A tensor of 16-bit elements, (columns, heads, rows), in global memory, of which boxes of
// 64 columns × box_heads × box_rows are copied to shared memory, swizzled by 128 bytes; outside of
// it are zeros. The base and the bytes between heads and between rows are multiples of 16. By its
// documentation cuTensorMapEncodeTiled also wants those between rows to be multiples of those
// between heads, which rows of queries with dO, LSE and delta are not (nor are tensors for which
// other libraries have maps).
struct TensorMapSpec {
  const std::byte* base = nullptr;
  int32_t columns = 0, heads = 0, rows = 0, box_rows = 0, box_heads = 1;
  int64_t head_bytes = 0, row_bytes = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TENSOR_MAP_H_
