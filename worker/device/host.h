#ifndef ANNULUS_WORKER_DEVICE_HOST_H_
#define ANNULUS_WORKER_DEVICE_HOST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "worker/device/device.h"
#include "worker/kernel/compute_pool.h"

namespace annulus {

// Freed blocks of a process's devices, kept for later requests. The operating system clears each
// page at its first touch, which takes as long as attention with short rows. Thread-safe.
class HostMemory;

// Kept and used memory together never exceed `kept_bytes`, unless used memory alone does. 0:
// nothing is kept.
std::shared_ptr<HostMemory> MakeHostMemory(int64_t kept_bytes);
// The number of bytes kept now.
int64_t KeptBytes(HostMemory* memory);

// The largest block that a device allocates. Some allocators end the process on a request above any
// machine's memory. Also the largest budget of a worker.
inline constexpr int64_t kMostHostBytes = int64_t{1} << 40;

// Host memory as a device. Copies are synchronous. Has no budget: callers reserve memory in theirs.
// A kept block is used for requests of at least 8/9 of its size, so the memory in use exceeds the
// requests by at most 1/8.
class HostDevice final : public Device {
 public:
  // Large copies are split over `pool`, whose owner thread is the device's. nullptr: no pool.
  HostDevice(std::shared_ptr<HostMemory> memory, std::shared_ptr<ComputePool> pool);

  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) override;
  absl::Status CopyIn(const Copy2d& copy) override { return Copy(copy); }
  absl::Status CopyOut(const Copy2d& copy) override { return Copy(copy); }
  bool reads_staging() const override { return true; }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  std::string Description() const override { return "host"; }

  const std::shared_ptr<ComputePool>& pool() const { return pool_; }

 private:
  absl::Status Copy(const Copy2d& copy);

  const std::shared_ptr<HostMemory> memory_;
  const std::shared_ptr<ComputePool> pool_;
};

// A device whose copies run on the calling thread only.
std::unique_ptr<Device> MakeHostDevice(std::shared_ptr<HostMemory> memory = MakeHostMemory(0));

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_HOST_H_
