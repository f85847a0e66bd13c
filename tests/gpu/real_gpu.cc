#include "tests/gpu/real_gpu.h"

#include <cstdlib>

#include "base/status_macros.h"
#include "worker/device/cuda_runtime.h"
#include "worker/kernel/cuda/cudnn/cudnn_library.h"
#include "worker/kernel/cuda/device_kernel.h"
#include "worker/kernel/cuda/sm80/shared_bytes.h"

namespace annulus {

std::string WhyNoGpu() { return std::string(CountGpus(CudaRuntime()).status().message()); }

absl::StatusOr<std::shared_ptr<CudaContext>> RealGpu(int64_t arena_bytes) {
  CudaContext::Options options;
  options.arena_bytes = arena_bytes;
  options.shared_bytes = cuda::kMostSharedBytes;
  return CudaContext::Create(CudaRuntime(), options);
}

absl::Status WithoutHopperKernel(const CudaProperties& properties) {
  if (properties.major == 9 && properties.minor == 0)
    return absl::InternalError("a GPU of sm_90, and no kernel for Hopper");
  return absl::FailedPreconditionError("the kernel for Hopper needs a GPU of sm_90");
}

absl::Status LoadedCudnnRefused(const absl::Status& made) {
  return absl::IsFailedPrecondition(made) ? absl::InternalError(made.message()) : made;
}

namespace {

cuda::DeviceKernelOptions Options() {
  cuda::DeviceKernelOptions options;
  options.threads = 2;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionKernel>> KernelOn(CudaDevice* device) {
  return cuda::MakeDeviceKernel(device, Options());
}

absl::StatusOr<std::unique_ptr<AttentionKernel>> HopperKernelOn(CudaDevice* device) {
  cuda::DeviceKernelOptions options = Options();
  options.hopper.on = options.hopper.gradients = true;
  auto kernel = cuda::MakeDeviceKernel(device, options);
  if (!absl::IsFailedPrecondition(kernel.status())) return kernel;
  return WithoutHopperKernel(device->context()->properties());
}

absl::StatusOr<std::unique_ptr<AttentionKernel>> CudnnKernelOn(CudaDevice* device,
                                                               const cuda::CudnnRule& rule) {
  const char* const asked = std::getenv("ANNULUS_CUDNN_LIBRARY");
  cuda::DeviceKernelOptions options = Options();
  ASSIGN_OR_RETURN(options.cudnn, cuda::LoadCudnn(asked == nullptr ? "libcudnn.so.9" : asked));
  options.rule = rule;
  auto kernel = cuda::MakeDeviceKernel(device, options);
  if (!kernel.ok()) return LoadedCudnnRefused(kernel.status());
  return kernel;
}

}  // namespace annulus
