#ifndef ANNULUS_WORKER_DEVICE_CUDA_CONTEXT_H_
#define ANNULUS_WORKER_DEVICE_CUDA_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/cuda_api.h"
#include "worker/device/device.h"
#include "worker/device/load_gate.h"
#include "worker/device/memory_slab.h"

namespace annulus {

// Converts the error of a call: RESOURCE_EXHAUSTED / OUT_OF_MEMORY, or INTERNAL / DEVICE_FAULT.
// `what`: the call.
absl::Status CudaStatus(CudaApi* api, CudaError error, absl::string_view what);

// The number of GPUs. FAILED_PRECONDITION with a one-line message: no GPU, no driver, or the driver
// is too old. Sets CUDA_MODULE_LOADING in the environment, overwriting it, before the first CUDA
// call: kernels are loaded eagerly. A lazily loaded kernel would allocate memory at its first
// launch and wait for communicators.
absl::StatusOr<int> CountGpus(CudaApi* api);

// True if the GPU exists and has this compute capability. Allocates nothing on it.
bool HasCapability(CudaApi* api, int ordinal, int major, int minor);

// A process's memory on one GPU. All memory is allocated at start, because an allocation while a
// communicator works may block the whole device. Thread-safe; shared by the lanes' devices.
class CudaContext {
 public:
  struct Options {
    int ordinal = 0;
    // Memory for arenas of jobs, and for workspaces of kernels.
    int64_t arena_bytes = 0;
    int64_t workspace_bytes = int64_t{256} << 20;
    // Pinned host memory for staging, from which copies go directly to the device. 0: none.
    int64_t staging_bytes = 0;
    // Pinned host memory of each lane: half for copies in, half for copies out.
    int64_t bounce_bytes = int64_t{32} << 20;
    // Shared memory per block that kernels need. GPUs with less are refused.
    int64_t shared_bytes = 0;
  };
  // `api` must outlive the context. FAILED_PRECONDITION with a one-line message: no such GPU,
  // driver or compute capability too old, a GPU in exclusive use by another process, or too little
  // memory of any kind.
  static absl::StatusOr<std::shared_ptr<CudaContext>> Create(CudaApi* api, const Options& options);

  CudaApi* api() const { return api_; }
  const Options& options() const { return options_; }
  const CudaProperties& properties() const { return properties_; }
  // "NVIDIA H100 80GB HBM3 (sm_90) at 0000:3b:00.0, 18 NVLinks to switches, CUDA 13.0, driver
  // 13.1".
  const std::string& description() const { return description_; }
  MemorySlab* memory() const { return memory_.get(); }
  // Separates communication from loading code while lanes run.
  LoadGate* load_gate() { return &load_gate_; }
  // nullptr if staging_bytes is 0.
  const std::shared_ptr<MemorySlab>& staging() const { return staging_; }

 private:
  CudaContext(CudaApi* api, const Options& options) : api_(api), options_(options) {}
  absl::Status Open();
  absl::Status TakeMemory();

  CudaApi* const api_;
  const Options options_;
  CudaProperties properties_;
  LoadGate load_gate_;
  std::string description_;
  std::shared_ptr<MemorySlab> memory_, staging_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_CUDA_CONTEXT_H_
