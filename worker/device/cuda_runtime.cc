#include "worker/device/cuda_runtime.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/device/nv_links.h"

namespace annulus {
namespace {

static_assert(kCudaSuccess == cudaSuccess);
static_assert(kCudaOutOfMemory == cudaErrorMemoryAllocation);
static_assert(kCudaInsufficientDriver == cudaErrorInsufficientDriver);
static_assert(kCudaDevicesUnavailable == cudaErrorDevicesUnavailable);
static_assert(kCudaNoDevice == cudaErrorNoDevice);
static_assert(kCudaNotReady == cudaErrorNotReady);

cudaStream_t Stream(CudaStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t Event(CudaEvent event) { return static_cast<cudaEvent_t>(event); }

// CUDA keeps a non-fatal error for the thread and would attribute it to the next launch.
CudaError Seen(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

class RuntimeApi final : public CudaApi {
 public:
  std::string ErrorText(CudaError error) override {
    const auto code = static_cast<cudaError_t>(error);
    return absl::StrCat(cudaGetErrorName(code), ": ", cudaGetErrorString(code));
  }
  CudaError Versions(int* driver, int* runtime) override {
    const cudaError_t error = cudaDriverGetVersion(driver);
    return Seen(error != cudaSuccess ? error : cudaRuntimeGetVersion(runtime));
  }
  CudaError DeviceCount(int* count) override { return Seen(cudaGetDeviceCount(count)); }
  CudaError Properties(int ordinal, CudaProperties* properties) override {
    cudaDeviceProp found;
    const cudaError_t error = cudaGetDeviceProperties(&found, ordinal);
    if (error != cudaSuccess) return Seen(error);
    properties->name = found.name;
    properties->place =
        absl::StrFormat("%04x:%02x:%02x.0", found.pciDomainID, found.pciBusID, found.pciDeviceID);
    properties->major = found.major;
    properties->minor = found.minor;
    properties->multiprocessors = found.multiProcessorCount;
    properties->memory_bytes = static_cast<int64_t>(found.totalGlobalMem);
    properties->shared_bytes_per_block = static_cast<int64_t>(found.sharedMemPerBlockOptin);
    return kCudaSuccess;
  }
  std::string Links(const std::string& place) override {
    const auto ends = FindNvLinks("libnvidia-ml.so.1", place);
    return ends.has_value() ? NvLinksText(*ends) : "";
  }
  CudaError SetDevice(int ordinal) override { return Seen(cudaSetDevice(ordinal)); }

  CudaError MemoryFree(int64_t* bytes) override {
    size_t free = 0, total = 0;
    const cudaError_t error = cudaMemGetInfo(&free, &total);
    *bytes = static_cast<int64_t>(free);
    return Seen(error);
  }
  CudaError Malloc(std::byte** memory, int64_t bytes) override {
    return Seen(cudaMalloc(reinterpret_cast<void**>(memory), bytes));
  }
  CudaError Free(std::byte* memory) override { return Seen(cudaFree(memory)); }
  CudaError HostMalloc(std::byte** memory, int64_t bytes) override {
    return Seen(cudaHostAlloc(reinterpret_cast<void**>(memory), bytes, cudaHostAllocPortable));
  }
  CudaError HostFree(std::byte* memory) override { return Seen(cudaFreeHost(memory)); }

  CudaError StreamCreate(CudaStream* stream, CudaPriority priority) override {
    int least = 0, greatest = 0;
    const cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error != cudaSuccess) return Seen(error);
    // A greater number means a lower priority. With only two levels, groups share the lower one
    // with solo jobs.
    const int level = priority == CudaPriority::kTransfers ? greatest
                      : priority == CudaPriority::kGroup   ? (least + greatest) / 2
                                                           : least;
    return Seen(cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(stream),
                                             cudaStreamNonBlocking, level));
  }
  CudaError StreamDestroy(CudaStream stream) override {
    return Seen(cudaStreamDestroy(Stream(stream)));
  }
  CudaError StreamWait(CudaStream stream, CudaEvent event) override {
    return Seen(cudaStreamWaitEvent(Stream(stream), Event(event), 0));
  }
  CudaError EventCreate(CudaEvent* event) override {
    return Seen(
        cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming));
  }
  CudaError EventDestroy(CudaEvent event) override { return Seen(cudaEventDestroy(Event(event))); }
  CudaError EventRecord(CudaEvent event, CudaStream stream) override {
    return Seen(cudaEventRecord(Event(event), Stream(stream)));
  }
  CudaError EventQuery(CudaEvent event) override { return Seen(cudaEventQuery(Event(event))); }

  CudaError CopyAsync(const Copy2d& copy, CudaStream stream) override {
    if (copy.rows == 1) {
      return Seen(
          cudaMemcpyAsync(copy.target, copy.source, copy.width, cudaMemcpyDefault, Stream(stream)));
    }
    return Seen(cudaMemcpy2DAsync(copy.target, copy.target_stride, copy.source, copy.source_stride,
                                  copy.width, copy.rows, cudaMemcpyDefault, Stream(stream)));
  }
};

}  // namespace

CudaApi* CudaRuntime() {
  static RuntimeApi api;
  return &api;
}

}  // namespace annulus
