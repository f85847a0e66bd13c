#include "tests/gpu/real_gpu.h"

#include <utility>

#include "attention/status_macros.h"
#include "worker/device/cuda_runtime.h"
#include "worker/kernel/cuda/compiled_kernels.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/device_launcher.h"

namespace annulus {

absl::StatusOr<std::shared_ptr<CudaContext>> RealGpu(int64_t arena_bytes) {
  CudaContext::Options options;
  options.arena_bytes = arena_bytes;
  return CudaContext::Create(CudaRuntime(), options);
}

absl::StatusOr<std::unique_ptr<AttentionKernel>> KernelOn(CudaDevice* device) {
  cuda::CudaKernel::Options options;
  options.threads = 2;
  ASSIGN_OR_RETURN(options.launcher, cuda::DeviceLauncher::Create(device, cuda::CompiledKernels()));
  return cuda::CudaKernel::Create(std::move(options));
}

}  // namespace annulus
