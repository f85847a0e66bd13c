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

// Why tests that need a GPU skip themselves, in one line: there is none, no driver, or one that is
// too old. Empty where there is one; what cannot use it, then, is a failure. Touches CUDA.
std::string WhyNoGpu();

// The first GPU of this machine, with so much memory for blocks, and CUDA's own runtime; or why it
// cannot be used, in one line.
absl::StatusOr<std::shared_ptr<CudaContext>> RealGpu(int64_t arena_bytes);

// What a worker would run on it. Borrows the device.
absl::StatusOr<std::unique_ptr<AttentionKernel>> KernelOn(CudaDevice* device);
// The same with the kernel for Hopper where that serves a call. FAILED_PRECONDITION on other GPUs.
absl::StatusOr<std::unique_ptr<AttentionKernel>> HopperKernelOn(CudaDevice* device);
// With cuDNN, for rectangles by `rule`, from $ANNULUS_CUDNN_LIBRARY, else libcudnn.so.9.
// FAILED_PRECONDITION, which is a skip, in one line where none can be loaded, and only there.
absl::StatusOr<std::unique_ptr<AttentionKernel>> CudnnKernelOn(CudaDevice* device,
                                                               const cuda::CudnnRule& rule);
// What came of making a kernel of a cuDNN that was loaded: no skip, whatever it is.
absl::Status LoadedCudnnRefused(const absl::Status& made);
// Why a GPU has no kernel for Hopper: FAILED_PRECONDITION, which is a skip, where it is another;
// else INTERNAL.
absl::Status WithoutHopperKernel(const CudaProperties& properties);

}  // namespace annulus

#endif  // ANNULUS_TESTS_GPU_REAL_GPU_H_
