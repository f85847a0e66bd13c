#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// Launches of the gradients' kernel for sm_90a: pure functions, no device. As by the portable one,
// queries and keys have launches of their own, a block owns its accumulators, and a row of these
// sees its tasks in list order, and a task's tiles by increasing number.

// Whether that kernel computes the call: 16-bit inputs of up to 128 dimensions, in multiples of 8,
// whose rows lie as TMA wants them, at most 64 query heads of a key/value head (96 of up to 64
// dimensions), no modifier, no gradient of a bias, not deterministic (its tiles are another fold
// than the portable kernel's).
bool HopperServesGradients(const KernelJob& job, absl::Span<const KernelTask> tasks);

// kQueries, or kKeysAndValues. Of each task what comes by: keys and values, or queries and dO.
std::vector<TensorMapSpec> GradientMapsOf(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                          GradientSide side);

// As Launch (launch_plan.h), of one side; no blocks where no piece adds to it.
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
