#ifndef ANNULUS_TESTS_GPU_REAL_GPU_H_
#define ANNULUS_TESTS_GPU_REAL_GPU_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/device/cuda_device.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_plan.h"

namespace annulus {

// The one-line reason to skip tests that need a GPU: no GPU, no driver, or the driver is too old.
// Empty if there is one; then tests that cannot use it fail. Uses CUDA.
std::string WhyNoGpu();

// The first GPU of this machine with `arena_bytes` for blocks and CUDA's runtime, or a one-line
// error.
absl::StatusOr<std::shared_ptr<CudaContext>> RealGpu(int64_t arena_bytes);

// The kernel that a worker would use on it. Borrows the device.
absl::StatusOr<std::unique_ptr<AttentionKernel>> KernelOn(CudaDevice* device);
// Like KernelOn, with the Hopper kernel where it serves a call. FAILED_PRECONDITION on other GPUs.
absl::StatusOr<std::unique_ptr<AttentionKernel>> HopperKernelOn(CudaDevice* device);
// Like KernelOn, with cuDNN for rectangles by `rule`, from $ANNULUS_CUDNN_LIBRARY or libcudnn.so.9.
// FAILED_PRECONDITION (a skip) with a one-line message only if the library cannot be loaded.
absl::StatusOr<std::unique_ptr<AttentionKernel>> CudnnKernelOn(CudaDevice* device,
                                                               const cuda::CudnnRule& rule);
// Converts an error after cuDNN was loaded to one that is no skip.
absl::Status LoadedCudnnRefused(const absl::Status& made);
// The error if a GPU has no Hopper kernel: FAILED_PRECONDITION (a skip) on another GPU, otherwise
// INTERNAL.
absl::Status WithoutHopperKernel(const CudaProperties& properties);

}  // namespace annulus

#endif  // ANNULUS_TESTS_GPU_REAL_GPU_H_
