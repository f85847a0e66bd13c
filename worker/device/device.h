#ifndef ANNULUS_WORKER_DEVICE_DEVICE_H_
#define ANNULUS_WORKER_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

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

// Where blocks live. Host memory (staging) and device memory may be the same kind. One owner
// thread.
class Device {
 public:
  virtual ~Device() = default;

  // Aligned to at least 128 bytes; contents undefined. RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) = 0;

  // Staging → device and back, queued in order with the kernel's work; complete after Synchronize.
  virtual absl::Status CopyIn(const Copy2d& copy) = 0;
  virtual absl::Status CopyOut(const Copy2d& copy) = 0;

  // Blocks until all queued work is done. INTERNAL on a device fault.
  virtual absl::Status Synchronize() = 0;

  virtual std::string Description() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_DEVICE_H_
