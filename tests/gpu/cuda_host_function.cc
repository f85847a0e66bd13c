#include "tests/gpu/cuda_host_function.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "worker/device/cuda_runtime.h"

namespace annulus {
namespace {

void RunAndForget(void* function) {
  const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(function));
  (*owned)();
}

class HostMemoryRuntime final : public CudaApi {
 public:
  std::string ErrorText(CudaError error) override { return inner_->ErrorText(error); }
  CudaError Versions(int* driver, int* runtime) override {
    return inner_->Versions(driver, runtime);
  }
  CudaError DeviceCount(int* count) override { return inner_->DeviceCount(count); }
  CudaError Properties(int ordinal, CudaProperties* properties) override {
    return inner_->Properties(ordinal, properties);
  }
  std::string Links(const std::string& place) override { return inner_->Links(place); }
  CudaError SetDevice(int ordinal) override { return inner_->SetDevice(ordinal); }
  CudaError MemoryFree(int64_t* bytes) override { return inner_->MemoryFree(bytes); }
  CudaError Malloc(std::byte** memory, int64_t bytes) override {
    return inner_->HostMalloc(memory, bytes);
  }
  CudaError Free(std::byte* memory) override { return inner_->HostFree(memory); }
  CudaError HostMalloc(std::byte** memory, int64_t bytes) override {
    return inner_->HostMalloc(memory, bytes);
  }
  CudaError HostFree(std::byte* memory) override { return inner_->HostFree(memory); }
  CudaError StreamCreate(CudaStream* stream, CudaPriority priority) override {
    return inner_->StreamCreate(stream, priority);
  }
  CudaError StreamDestroy(CudaStream stream) override { return inner_->StreamDestroy(stream); }
  CudaError StreamWait(CudaStream stream, CudaEvent event) override {
    return inner_->StreamWait(stream, event);
  }
  CudaError EventCreate(CudaEvent* event) override { return inner_->EventCreate(event); }
  CudaError EventDestroy(CudaEvent event) override { return inner_->EventDestroy(event); }
  CudaError EventRecord(CudaEvent event, CudaStream stream) override {
    return inner_->EventRecord(event, stream);
  }
  CudaError EventQuery(CudaEvent event) override { return inner_->EventQuery(event); }
  CudaError CopyAsync(const Copy2d& copy, CudaStream stream) override {
    return inner_->CopyAsync(copy, stream);
  }

 private:
  CudaApi* const inner_ = CudaRuntime();
};

}  // namespace

CudaError LaunchOnHost(CudaStream stream, std::function<void()> function) {
  auto owned = std::make_unique<std::function<void()>>(std::move(function));
  const cudaError_t error =
      cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), RunAndForget, owned.get());
  if (error == cudaSuccess) (void)owned.release();
  return error;
}

std::unique_ptr<CudaApi> MakeHostMemoryRuntime() { return std::make_unique<HostMemoryRuntime>(); }

}  // namespace annulus
