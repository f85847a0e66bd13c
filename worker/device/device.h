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

// The reason of an error after which this process can do nothing more on its device.
inline constexpr absl::string_view kReasonDeviceFault = "DEVICE_FAULT";
inline bool IsDeviceFault(const absl::Status& status) {
  return !status.ok() && DetailOf(status).reason == kReasonDeviceFault;
}

// Device memory that frees itself, on any thread.
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

// Where blocks live, and the queue of one lane's work on them: what its kernel, its communicators
// and its copies are given is done in that order, sooner or later. Host memory (staging) and device
// memory may be the same kind. One owner thread, but for Allocate. Kernels and communicators borrow
// it and go before it.
class Device {
 public:
  virtual ~Device() = default;

  // Any thread. Aligned to at least 128 bytes; contents undefined. RESOURCE_EXHAUSTED. Freed only
  // when no queued work uses it: after Synchronize.
  virtual absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) = 0;

  // Staging → device and back. Queued: both sides stay as they are until Synchronize. The target
  // of CopyIn has not been used since the last Synchronize, so that copies need not wait for what
  // is being computed; rows of its source may overlap (a stride below `width`, 0 included).
  virtual absl::Status CopyIn(const Copy2d& copy) = 0;
  virtual absl::Status CopyOut(const Copy2d& copy) = 0;

  // Whether its kernels read and write staging where it lies, as they do the memory of Allocate.
  // Blocks may stay there then (attention/schedule/arena/arena_plan.h, BuffersInStaging).
  virtual bool reads_staging() const { return false; }

  // Blocks until all queued work is done. INTERNAL / DEVICE_FAULT where some of it failed: the
  // process has lost the device.
  virtual absl::Status Synchronize() = 0;

  // To tell what waits for a kernel from what waits for others: notes how far kernels are queued.
  virtual void MarkKernels() {}
  // When (SteadyNow) the kernels before the last mark were seen done, by this call or an earlier
  // one; InfiniteFuture: not yet. Whoever waits meanwhile asks as it does. In the past where
  // kernels are done when they return.
  virtual absl::Time KernelsDone() { return absl::InfinitePast(); }

  virtual std::string Description() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_DEVICE_H_
