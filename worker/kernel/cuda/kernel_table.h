#ifndef ANNULUS_WORKER_KERNEL_CUDA_KERNEL_TABLE_H_
#define ANNULUS_WORKER_KERNEL_CUDA_KERNEL_TABLE_H_

#include <cstdint>

#include "worker/device/cuda_api.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/op_args.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// Kernels that can be launched on the thread's current device: compiled ones, or a fake in tests.
// Thread-safe.
class KernelTable {
 public:
  virtual ~KernelTable() = default;

  // Loads every kernel, so that none is loaded while others run. Leaves out kernels whose blocks
  // need more shared memory than `max_shared_bytes` (SharedBytesOf).
  virtual CudaError Prepare(int64_t max_shared_bytes) = 0;
  // Encodes a tensor map: writes kMapBytes (hopper_config.h) to `to`, at any alignment. Needs a
  // driver. `refusal`: the driver's CUresult if it refuses the map, otherwise 0.
  virtual CudaError EncodeMap(const TensorMapSpec& map, std::byte* to, int* refusal) = 0;
  virtual CudaError Forward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                            CudaStream stream) = 0;
  virtual CudaError Gradients(const GradientKind& kind, const GradientArgs& args, int64_t blocks,
                              CudaStream stream) = 0;
  virtual CudaError Op(const OpArgs& args, int64_t blocks, CudaStream stream) = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_KERNEL_TABLE_H_
