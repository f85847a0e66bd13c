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

// A call's error: RESOURCE_EXHAUSTED / OUT_OF_MEMORY, or INTERNAL / DEVICE_FAULT. `what`: the call.
absl::Status CudaStatus(CudaApi* api, CudaError error, absl::string_view what);

// How many GPUs there are. FAILED_PRECONDITION, in one line for whoever starts the process, where
// there is none, no driver, or one that is too old. Before anything is asked of CUDA, it says in
// the environment (CUDA_MODULE_LOADING, whatever that was) that kernels are loaded at once: one
// that is loaded at its first launch takes memory then, and waits for communicators.
absl::StatusOr<int> CountGpus(CudaApi* api);

// Whether that GPU is there and has this compute capability. Takes nothing of it.
bool HasCapability(CudaApi* api, int ordinal, int major, int minor);

// A process's share of one GPU: all that is ever taken from it is taken here, at the start, because
// to allocate while a communicator works may hold up the whole device. Thread-safe; shared by the
// devices of the lanes.
class CudaContext {
 public:
  struct Options {
    int ordinal = 0;
    // For the arenas of jobs; and for what kernels hold beside them.
    int64_t arena_bytes = 0;
    int64_t workspace_bytes = int64_t{256} << 20;
    // Pinned host memory for staging, from which copies go straight to the device; 0: none.
    int64_t staging_bytes = 0;
    // Pinned host memory of each lane, half of it for copies in, half for copies out.
    int64_t bounce_bytes = int64_t{32} << 20;
    // Shared memory that kernels ask for, of a block; a GPU that gives less is refused.
    int64_t shared_bytes = 0;
  };
  // `api` outlives it. FAILED_PRECONDITION in one line: no such GPU, a driver or a capability that
  // is too old, a GPU that another process has to itself, not enough memory of any kind.
  static absl::StatusOr<std::shared_ptr<CudaContext>> Create(CudaApi* api, const Options& options);

  CudaApi* api() const { return api_; }
  const Options& options() const { return options_; }
  const CudaProperties& properties() const { return properties_; }
  // "NVIDIA H100 80GB HBM3 (sm_90) at 0000:3b:00.0, 18 NVLinks to switches, CUDA 13.0, driver
  // 13.1".
  const std::string& description() const { return description_; }
  MemorySlab* memory() const { return memory_.get(); }
  // Between its communicators and whatever loads code when lanes run.
  LoadGate* load_gate() { return &load_gate_; }
  // Null where no bytes were asked for.
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
