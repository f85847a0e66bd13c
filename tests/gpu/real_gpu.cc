#include "tests/gpu/real_gpu.h"

#include <utility>

#include "attention/status_macros.h"
#include "worker/device/cuda_runtime.h"
#include "worker/kernel/cuda/compiled_kernels.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/device_launcher.h"
#include "worker/kernel/cuda/shared_bytes.h"

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

namespace {

absl::StatusOr<std::unique_ptr<AttentionKernel>> Make(CudaDevice* device, bool hopper) {
  ASSIGN_OR_RETURN(std::unique_ptr<cuda::DeviceLauncher> launcher,
                   cuda::DeviceLauncher::Create(device, cuda::CompiledKernels(), {}, {hopper, 0}));
  if (hopper && !launcher->has_hopper())
    return WithoutHopperKernel(device->context()->properties());
  cuda::CudaKernel::Options options;
  options.threads = 2;
  options.launcher = std::move(launcher);
  return cuda::CudaKernel::Create(std::move(options));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionKernel>> KernelOn(CudaDevice* device) {
  return Make(device, /*hopper=*/false);
}

absl::StatusOr<std::unique_ptr<AttentionKernel>> HopperKernelOn(CudaDevice* device) {
  return Make(device, /*hopper=*/true);
}

}  // namespace annulus
