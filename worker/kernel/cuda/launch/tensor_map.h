#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TENSOR_MAP_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TENSOR_MAP_H_

#include <cstddef>
#include <cstdint>

namespace annulus::cuda {

// A tensor of 16-bit elements, (columns, heads, rows), in global memory. TMA copies boxes of 64
// columns × box_heads × box_rows of it to shared memory, with 128-byte swizzle; elements outside of
// it are zero. The base, head_bytes and row_bytes are multiples of 16. By its documentation,
// cuTensorMapEncodeTiled also requires that row_bytes is a multiple of head_bytes. Rows of queries
// with dO, LSE and delta do not satisfy that; nor do tensors that other libraries make maps for.
struct TensorMapSpec {
  const std::byte* base = nullptr;
  int32_t columns = 0, heads = 0, rows = 0, box_rows = 0, box_heads = 1;
  int64_t head_bytes = 0, row_bytes = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TENSOR_MAP_H_
