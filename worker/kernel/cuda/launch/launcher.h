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

// Queues work on one device, which does it in order, sooner or later. One owner thread. A device's
// stream, or the emulator of the tests, which does it at once.
class Launcher {
 public:
  virtual ~Launcher() = default;

  // Memory on the device for partials of a call, of 16 bytes' alignment at least; what one call
  // leaves there the next may overwrite.
  virtual std::byte* partials() const = 0;
  virtual int64_t partial_bytes() const = 0;

  // Bytes that one Upload may take.
  virtual int64_t max_tables() const = 0;
  // Copies to the device; the address, of 16 bytes at least, is good for what is launched until the
  // next Upload. RESOURCE_EXHAUSTED above max_tables.
  virtual absl::StatusOr<const std::byte*> Upload(absl::Span<const std::byte> tables) = 0;
  // Whether kinds with `hopper` are served: of attention, and of gradients.
  virtual bool has_hopper() const = 0;
  virtual bool has_hopper_gradients() const = 0;
  // kMapBytes for each map, as a device reads them. UNIMPLEMENTED for one that the driver refuses:
  // the device is as well as it was.
  virtual absl::Status EncodeMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) = 0;
  // `blocks`: items (ForwardItem). They are blocks of threads, but for the kernel of sm_90a: its
  // blocks take one after the other and count them in the tables, which thus serve one launch.
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
