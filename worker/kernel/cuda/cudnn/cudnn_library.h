#ifndef ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_LIBRARY_H_
#define ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/kernel/cuda/cudnn/cudnn_api.h"

namespace annulus::cuda {

// "9.19.0" for 91900.
std::string CudnnVersionText(int64_t version);

// Loads cuDNN at run time, so that programs start without it; `path` as for dlopen
// ("libcudnn.so.9"). It is never unloaded. FAILED_PRECONDITION, in one line, if there is no such
// library, or if it is older than 9.19.
absl::StatusOr<std::unique_ptr<CudnnApi>> LoadCudnn(const std::string& path);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_LIBRARY_H_
