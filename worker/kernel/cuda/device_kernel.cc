#include "worker/kernel/cuda/device_kernel.h"

#include <utility>

#include "base/status_macros.h"
#include "worker/kernel/cuda/compiled_kernels.h"

namespace annulus::cuda {

absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaKernel(CudaDevice* device,
                                                           const DeviceKernelOptions& options) {
  CudaKernel::Options made;
  made.threads = options.threads;
  ASSIGN_OR_RETURN(made.launcher,
                   DeviceLauncher::Create(device, CompiledKernels(), {}, options.hopper));
  if (options.hopper.on && !made.launcher->has_hopper())
    return absl::FailedPreconditionError("the kernel for Hopper needs a GPU of sm_90");
  return CudaKernel::Create(std::move(made));
}

absl::StatusOr<std::unique_ptr<CudnnKernel>> MakeCudnnKernel(CudaDevice* device,
                                                             const DeviceKernelOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaKernel> kernel, MakeCudaKernel(device, options));
  CudnnKernel::Options with;
  with.api = options.cudnn;
  with.launcher = kernel->launcher();
  with.other = std::move(kernel);
  with.device = device;
  with.stream = [device] { return device->Compute(); };
  with.rule = options.rule;
  with.gate = device->context()->load_gate();
  return CudnnKernel::Create(std::move(with));
}

absl::StatusOr<std::unique_ptr<AttentionKernel>> MakeDeviceKernel(
    CudaDevice* device, const DeviceKernelOptions& options) {
  if (options.cudnn == nullptr) return MakeCudaKernel(device, options);
  return MakeCudnnKernel(device, options);
}

}  // namespace annulus::cuda
