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
  int threads = 1;  // Of the host.
  HopperUse hopper;
  // What cuDNN does by `rule`; null: nothing.
  std::shared_ptr<CudnnApi> cudnn;
  CudnnRule rule;
};

// The compiled kernels on a GPU, which outlives them, without cuDNN. FAILED_PRECONDITION in one
// line for a GPU that is not one of sm_90 where the kernel for that is on; RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaKernel(CudaDevice* device,
                                                           const DeviceKernelOptions& options);
// With cuDNN, which the options name. FAILED_PRECONDITION also where that does not serve the GPU.
absl::StatusOr<std::unique_ptr<CudnnKernel>> MakeCudnnKernel(CudaDevice* device,
                                                             const DeviceKernelOptions& options);
// With cuDNN, too, where the options say so.
absl::StatusOr<std::unique_ptr<AttentionKernel>> MakeDeviceKernel(
    CudaDevice* device, const DeviceKernelOptions& options);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_DEVICE_KERNEL_H_
