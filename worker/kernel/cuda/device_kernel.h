#ifndef ANNULUS_WORKER_KERNEL_CUDA_DEVICE_KERNEL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_DEVICE_KERNEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/device/cuda_device.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_api.h"
#include "worker/kernel/cuda/cudnn/cudnn_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_plan.h"
#include "worker/kernel/cuda/device_launcher.h"

namespace annulus::cuda {

struct DeviceKernelOptions {
  int threads = 1;  // Host threads.
  HopperUse hopper;
  // cuDNN serves the calls that `rule` allows; null: none.
  std::shared_ptr<CudnnApi> cudnn;
  CudnnRule rule;
};

// Makes the compiled kernels on a GPU, which must outlive them, without cuDNN. Errors:
// FAILED_PRECONDITION, in one line, if `hopper` is on and the GPU is not sm_90; RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaKernel(CudaDevice* device,
                                                           const DeviceKernelOptions& options);
// Makes them with cuDNN, which the options must have. Errors as above; FAILED_PRECONDITION also if
// cuDNN does not serve the GPU.
absl::StatusOr<std::unique_ptr<CudnnKernel>> MakeCudnnKernel(CudaDevice* device,
                                                             const DeviceKernelOptions& options);
// Makes either: with cuDNN if the options have it.
absl::StatusOr<std::unique_ptr<AttentionKernel>> MakeDeviceKernel(
    CudaDevice* device, const DeviceKernelOptions& options);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_DEVICE_KERNEL_H_
