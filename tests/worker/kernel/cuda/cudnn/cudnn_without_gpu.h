#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_WITHOUT_GPU_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_WITHOUT_GPU_H_

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/kernel/cuda/cudnn/cudnn_graph.h"
#include "worker/kernel/cuda/cudnn/cudnn_library.h"

namespace annulus::cuda {

// The real cuDNN, configured for a GPU that does not exist: graphs are checked and compiled, but
// nothing runs. For tests only.
class CudnnWithoutGpu {
 public:
  // FAILED_PRECONDITION with the reason if this machine has no cuDNN or no libcuda. `toolkit`: the
  // CUDA toolkit, whose stub of libcuda replaces a driver's; empty: there is none.
  static absl::StatusOr<CudnnWithoutGpu> Open(const std::string& toolkit) {
    // cuDNN loads libcuda by this name, which finds the stub once it is loaded.
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr &&
        dlopen((toolkit + "/lib64/stubs/libcuda.so").c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
      return absl::FailedPreconditionError("neither a driver nor the toolkit's stub of it");
    CudnnWithoutGpu made;
    auto library = LoadCudnn("libcudnn.so.9");
    if (!library.ok()) return library.status();
    made.library_ = *std::move(library);
    CudnnDescriptor device = nullptr;
    made.library_->Create(CudnnKind::kDeviceProperties, &device);
    made.device_ = CudnnOwned(made.library_.get(), device);
    made.library_->Set(device, CudnnName::kDeviceJson, CudnnType::kChar, sizeof(kH100) - 1, kH100);
    if (made.library_->Finalize(device) != kCudnnSuccess)
      return absl::InternalError(made.library_->LastError());
    return made;
  }
  CudnnTarget target() const { return {library_.get(), nullptr, device_.get()}; }

 private:
  static constexpr char kH100[] =
      R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
      R"("regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
      R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
      R"("supportCoopLaunch":1,"totalGlobalMem":85899345920,"smClockRateKHz":1980000,)"
      R"("memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,"deviceVer":900,)"
      R"("driverVer":13000,"deviceName":"NVIDIA H100 80GB HBM3"})";

  std::unique_ptr<CudnnApi> library_;
  CudnnOwned device_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_WITHOUT_GPU_H_
