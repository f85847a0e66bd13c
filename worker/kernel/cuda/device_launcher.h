#ifndef ANNULUS_WORKER_KERNEL_CUDA_DEVICE_LAUNCHER_H_
#define ANNULUS_WORKER_KERNEL_CUDA_DEVICE_LAUNCHER_H_

#include <memory>
#include <string>

#include "worker/device/cuda_device.h"
#include "worker/kernel/cuda/kernel_table.h"
#include "worker/kernel/cuda/launch/launcher.h"

namespace annulus::cuda {

// What a launcher takes of its device.
struct LauncherMemory {
  int64_t table_bytes = int64_t{4} << 20;  // Of one launch; longer calls become several.
  int64_t partial_bytes = int64_t{16} << 20;
};

// The kernel for sm_90a, where the device is one.
struct HopperUse {
  bool on = false;         // It serves what it can.
  bool gradients = false;  // So does that for gradients.
  // Multiprocessors that its launches leave free for messages, which would wait until a launch
  // ends: on devices of groups. Jobs of one worker (CudaPriority::kSolo) have none to send.
  int kept = 0;
};

// Launches on a lane's compute queue. All device memory that it ever has is taken by Create.
class DeviceLauncher : public Launcher {
 public:
  // `device` and `kernels` outlive it. RESOURCE_EXHAUSTED; INTERNAL for a device that fails, or
  // for which no kernel was compiled.
  static absl::StatusOr<std::unique_ptr<DeviceLauncher>> Create(CudaDevice* device,
                                                                KernelTable* kernels,
                                                                const LauncherMemory& memory = {},
                                                                const HopperUse& hopper = {});

  // What is queued may still read its tables: waits for it.
  ~DeviceLauncher() override { (void)device_->Synchronize(); }

  std::byte* partials() const override { return partials_.get(); }
  int64_t partial_bytes() const override { return memory_.partial_bytes; }
  int64_t max_tables() const override { return memory_.table_bytes; }
  absl::StatusOr<const std::byte*> Upload(absl::Span<const std::byte> tables) override;
  bool has_hopper() const override { return hopper_.on; }
  bool has_hopper_gradients() const override { return hopper_.on && hopper_.gradients; }
  absl::Status EncodeMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) override;
  // UNIMPLEMENTED where the device has too little shared memory for the kernel.
  absl::Status Forward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks) override;
  absl::Status Gradients(const GradientKind& kind, const GradientArgs& args,
                         int64_t blocks) override;
  absl::Status Op(const OpArgs& args, int64_t blocks) override;
  std::string Description() const override { return device_->Description(); }

 private:
  DeviceLauncher(CudaDevice* device, KernelTable* kernels, const LauncherMemory& memory,
                 const HopperUse& hopper)
      : device_(device), kernels_(kernels), memory_(memory), hopper_(hopper) {}
  absl::Status CheckShared(int64_t bytes, int dim) const;

  CudaDevice* const device_;
  KernelTable* const kernels_;
  const LauncherMemory memory_;
  const HopperUse hopper_;
  // One place is enough: a table comes in the order of launches, after those that read the one
  // before.
  DeviceMemory tables_, partials_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_DEVICE_LAUNCHER_H_
