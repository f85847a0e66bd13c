#ifndef ANNULUS_WORKER_DEVICE_DEVICE_H_
#define ANNULUS_WORKER_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/error.h"

namespace annulus {

// The reason of an error after which this process cannot use its device.
inline constexpr absl::string_view kReasonDeviceFault = "DEVICE_FAULT";
inline bool IsDeviceFault(const absl::Status& status) {
  return !status.ok() && DetailOf(status).reason == kReasonDeviceFault;
}

// Device memory. The last reference frees it, on any thread.
using DeviceMemory = std::shared_ptr<std::byte>;

// A two-dimensional copy: `rows` pieces of `width` bytes.
struct Copy2d {
  std::byte* target = nullptr;
  int64_t target_stride = 0;
  const std::byte* source = nullptr;
  int64_t source_stride = 0;
  int64_t width = 0;
  int64_t rows = 0;
};

// A lane's device: memory for blocks, and a queue of work. Kernels, communicators and copies of the
// lane run in the order in which they are queued, possibly asynchronously. Host memory (staging)
// and device memory may be the same kind. One owner thread, except for Allocate. Must outlive the
// kernels and communicators that borrow it.
class Device {
 public:
  virtual ~Device() = default;

  // Aligned to at least 128 bytes; content undefined. RESOURCE_EXHAUSTED. Free the memory only if
  // no queued work uses it, after Synchronize. Any thread.
  virtual absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) = 0;

  // Queue a copy from staging to the device, and back. Both sides must stay unchanged until
  // Synchronize. The target of CopyIn must not have been used since the last Synchronize, so copies
  // need not wait for kernels. Rows of its source may overlap (a stride below `width`, also 0).
  virtual absl::Status CopyIn(const Copy2d& copy) = 0;
  virtual absl::Status CopyOut(const Copy2d& copy) = 0;

  // True if kernels can read and write staging directly. Then blocks may stay there
  // (BuffersInStaging, attention/schedule/arena/arena_plan.h).
  virtual bool reads_staging() const { return false; }

  // Waits until all queued work is done. INTERNAL / DEVICE_FAULT: some of it failed, and the
  // process cannot use the device again.
  virtual absl::Status Synchronize() = 0;

  // Marks the kernels queued so far, to separate waiting for kernels from waiting for peers.
  virtual void MarkKernels() {}
  // The time (SteadyNow) at which the kernels before the last mark were first seen to be done, by
  // this call or an earlier one. InfiniteFuture: not yet. A waiting thread calls it while it waits.
  // InfinitePast if kernels are synchronous.
  virtual absl::Time KernelsDone() { return absl::InfinitePast(); }

  virtual std::string Description() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_DEVICE_H_
