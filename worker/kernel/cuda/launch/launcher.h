#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCHER_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCHER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/op_args.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// Queues work on one device, which runs it in order, at any later time. One owner thread.
// Implemented by a device's stream, and by the tests' emulator, which runs the work at once.
class Launcher {
 public:
  virtual ~Launcher() = default;

  // Device memory for the partials of a call, aligned to at least 16 bytes. The next call may
  // overwrite it.
  virtual std::byte* partials() const = 0;
  virtual int64_t partial_bytes() const = 0;

  // The most bytes that one Upload takes.
  virtual int64_t max_tables() const = 0;
  // Copies tables to the device and returns their address, aligned to at least 16 bytes. It is
  // valid for launches until the next Upload. RESOURCE_EXHAUSTED above max_tables.
  virtual absl::StatusOr<const std::byte*> Upload(absl::Span<const std::byte> tables) = 0;
  // True if kinds with `hopper` are served: for attention, and for gradients.
  virtual bool has_hopper() const = 0;
  virtual bool has_hopper_gradients() const = 0;
  // Encodes maps: kMapBytes each, in the device's format. UNIMPLEMENTED if the driver refuses a
  // map; the device is still usable.
  virtual absl::Status EncodeMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) = 0;
  // `blocks`: items (ForwardItem). Each is a thread block, except on the kernel for sm_90a. It has
  // persistent blocks, which take items by a counter in the tables, so its tables serve one launch
  // only.
  virtual absl::Status Forward(const ForwardKind& kind, const ForwardArgs& args,
                               int64_t blocks) = 0;
  virtual absl::Status Gradients(const GradientKind& kind, const GradientArgs& args,
                                 int64_t blocks) = 0;
  virtual absl::Status Op(const OpArgs& args, int64_t blocks) = 0;

  // "NVIDIA H100, sm_90", ...
  virtual std::string Description() const = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCHER_H_
