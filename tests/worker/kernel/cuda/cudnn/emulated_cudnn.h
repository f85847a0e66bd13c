#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_EMULATED_CUDNN_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_EMULATED_CUDNN_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "tests/worker/kernel/cuda/cudnn/cudnn_stand_in.h"
#include "worker/device/load_gate.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_plan.h"

namespace annulus::cuda {

// Rectangles of any size go to cuDNN in small pieces, if its arithmetic is the job's.
CudnnRule SmallCudnnRule();

struct EmulatedCudnnOptions {
  size_t most_plans = 512;
  // Called at each wait for the device.
  std::function<void()> waits = [] {};
  const absl::Status* fault = nullptr;  // The result of a wait for the device, unless nullptr.
  LoadGate* gate = nullptr;
  const CudnnKernel** made = nullptr;  // If not nullptr, set to the kernel inside the returned one.
};

// The cuDNN kernel and the emulated CUDA kernel, on host memory.
std::unique_ptr<AttentionKernel> MakeEmulatedCudnnKernel(std::shared_ptr<CudnnStandIn> cudnn,
                                                         const CudnnRule& rule,
                                                         const EmulatedCudnnOptions& more = {});

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_EMULATED_CUDNN_H_
