#ifndef ANNULUS_WORKER_DEVICE_HOST_H_
#define ANNULUS_WORKER_DEVICE_HOST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "worker/device/device.h"
#include "worker/kernel/compute_pool.h"

namespace annulus {

// Blocks that devices of one process have freed, kept for their next requests: the kernel clears
// every page that a process touches first, which takes as long as attention does where rows are
// short. Thread-safe.
class HostMemory;

// `kept_bytes`: what is kept and what is in use never exceed it together, unless what is in use
// does alone. 0: nothing is kept.
std::shared_ptr<HostMemory> MakeHostMemory(int64_t kept_bytes);
// What is kept now.
int64_t KeptBytes(HostMemory* memory);

// The largest block that a device gives: some allocators end the process where they are asked for
// more than any machine has. A worker's budget may not be larger.
inline constexpr int64_t kMostHostBytes = int64_t{1} << 40;

// Host memory as a device: copies are done when they return. Keeps no budget: who allocates has
// one, and counts what it asks for. A kept block goes to a request of at least eight ninths of its
// size, so what is in use exceeds what was asked for by an eighth at most.
class HostDevice final : public Device {
 public:
  // Large copies are shared out among `pool`, whose owner thread is the device's; null: none.
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

// One whose copies its owner makes alone.
std::unique_ptr<Device> MakeHostDevice(std::shared_ptr<HostMemory> memory = MakeHostMemory(0));

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_HOST_H_
