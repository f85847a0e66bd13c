#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// Launches of the gradient kernel for sm_90a: pure functions, no device. Like with the portable
// kernel, queries and keys have separate launches, and a block owns its accumulators. An
// accumulator row sees its tasks in list order, and a task's tiles by increasing number.

// True if that kernel can compute the call:
// - 16-bit inputs of up to 128 dimensions, in multiples of 8, with rows aligned for TMA.
// - At most 64 query heads per key/value head (96 with up to 64 dimensions).
// - No modifier, no gradient of a bias.
// - Not deterministic: its tiles fold keys in another order than the portable kernel's.
bool HopperServesGradients(const KernelJob& job, absl::Span<const KernelTask> tasks);

// The tensor maps of each task's streamed inputs. `side` is kQueries (keys and values are streamed)
// or kKeysAndValues (queries and dO are).
std::vector<TensorMapSpec> GradientMapsOf(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                          GradientSide side);

// Like Launch (launch_plan.h), for one side. blocks == 0: no piece adds to that side.
struct HopperGradientLaunch {
  std::vector<std::byte> bytes;
  GradientArgs args = {};
  int64_t blocks = 0;
};
HopperGradientLaunch MakeHopperGradients(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                         const VisibleRows& visible, const LaunchPieces& pieces,
                                         GradientSide side, PlanMemory* memory);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_PLAN_H_
