#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/forward_args.h"
#include "worker/kernel/cuda/launch_cut.h"
#include "worker/kernel/cuda/tensor_map.h"
#include "worker/kernel/visibility.h"

namespace annulus::cuda {

// Launches of the forward kernel, whose pieces CutCall has cut: pure functions, no device.

// Which instantiation serves a job. Dimensions are at most kMaxDim, the type fp32, fp16 or bf16.
ForwardKind KindOf(const KernelJob& job);

// A launch: `bytes` go to the device, and their address into args.tables. `maps` are encoded at
// args.at.maps of them before.
struct Launch {
  std::vector<std::byte> bytes;
  std::vector<TensorMapSpec> maps;
  ForwardArgs args = {};
  int64_t blocks = 0;
};
// `cached_bytes`: keys and values that a GPU's L2 cache keeps while many blocks go through them, as
// the kernel of sm_90a goes through the heads.
inline constexpr int64_t kCachedBytes = int64_t{32} << 20;
Launch MakeLaunch(const KernelJob& job, absl::Span<const KernelTask> tasks,
                  const CallVisibility& visible, const LaunchPieces& pieces, bool hopper = false,
                  int64_t cached_bytes = kCachedBytes);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_PLAN_H_
