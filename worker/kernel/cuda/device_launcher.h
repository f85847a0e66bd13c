#ifndef ANNULUS_WORKER_KERNEL_CUDA_DEVICE_LAUNCHER_H_
#define ANNULUS_WORKER_KERNEL_CUDA_DEVICE_LAUNCHER_H_

#include <memory>
#include <string>

#include "worker/device/cuda_device.h"
#include "worker/kernel/cuda/kernel_table.h"
#include "worker/kernel/cuda/launch/launcher.h"

namespace annulus::cuda {

// The device memory of a launcher.
struct LauncherMemory {
  // Tables of one launch; a longer call becomes several launches.
  int64_t table_bytes = int64_t{4} << 20;
  int64_t partial_bytes = int64_t{16} << 20;
};

// The use of the kernels for sm_90a, on devices of that architecture.
struct HopperUse {
  bool on = false;         // The forward kernel serves the calls that it can.
  bool gradients = false;  // So does the gradient kernel.
  // Multiprocessors that its launches leave free for messages, on devices of groups: otherwise a
  // message would wait until a launch ends. Jobs of one worker (CudaPriority::kSolo) send no
  // messages.
  int kept = 0;
};

// Launches on a lane's compute queue. Create allocates all device memory of the launcher.
class DeviceLauncher : public Launcher {
 public:
  // `device` and `kernels` must outlive the launcher. Errors: RESOURCE_EXHAUSTED; INTERNAL if the
  // device fails or no kernel was compiled for it.
  static absl::StatusOr<std::unique_ptr<DeviceLauncher>> Create(CudaDevice* device,
                                                                KernelTable* kernels,
                                                                const LauncherMemory& memory = {},
                                                                const HopperUse& hopper = {});

  // Waits for queued work, which may still read the tables.
  ~DeviceLauncher() override { (void)device_->Synchronize(); }

  std::byte* partials() const override { return partials_.get(); }
  int64_t partial_bytes() const override { return memory_.partial_bytes; }
  int64_t max_tables() const override { return memory_.table_bytes; }
  absl::StatusOr<const std::byte*> Upload(absl::Span<const std::byte> tables) override;
  bool has_hopper() const override { return hopper_.on; }
  bool has_hopper_gradients() const override { return hopper_.on && hopper_.gradients; }
  absl::Status EncodeMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) override;
  // UNIMPLEMENTED if the device has too little shared memory for the kernel.
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
  // One buffer of tables is enough. An upload is ordered with launches, so it comes after those
  // that read the tables before.
  DeviceMemory tables_, partials_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_DEVICE_LAUNCHER_H_
