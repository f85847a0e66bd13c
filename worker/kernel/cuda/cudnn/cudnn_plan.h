#ifndef ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_graph.h"
#include "worker/kernel/cuda/ops/op_plan.h"

namespace annulus::cuda {

// What cuDNN does of a call: pure functions, no device.
//
// It multiplies what a mask hides with weights of 0, so that a NaN in a hidden value would show.
// So it gets rectangles in which every row sees every key, and nothing else; a causal mask leaves
// it those below the diagonal.

// Below these a rectangle costs more in merging than cuDNN may save.
struct CudnnRule {
  int64_t least_rows = 256, least_keys = 2048;
  // What is cut is cut at local multiples of it, which suits cuDNN's tiles.
  int64_t granule = 128;
  // For one rectangle's means (MeansOf).
  int64_t scratch_bytes = int64_t{64} << 20;
  // Multiply-adds (WorkOf) that are queued before they are waited for, where one rectangle has no
  // more: a fraction of a second of a large GPU.
  double most_queued = 2.5e13;
  // A tensor from its first number to its last has fewer, whatever lies between its rows; what has
  // more is left to kernels that are known to count further.
  int64_t most_numbers = int64_t{1} << 31;
};

// Whether cuDNN's arithmetic is the job's: fp16 or bf16, head dimensions of multiples of 8 up to
// 256, a scale above 0, nothing done to scores or weights but a mask, not deterministic (its fold
// is its own).
bool CudnnServes(const KernelJob& job);

// Tasks of a call, in their order; together they see what the call's did. Heads that see the same
// are cut together: what other heads see changes nothing.
struct CudnnCut {
  // One block of queries, heads and accumulator each, of Coverage::kFull. Their tensors lie as
  // cuDNN wants them, with no more numbers than the rule says, and their means fit the scratch.
  std::vector<KernelTask> rectangles;
  std::vector<KernelTask> rest;
};
CudnnCut CutForCudnn(const KernelJob& job, absl::Span<const KernelTask> tasks,
                     const CudnnRule& rule);

// Multiply-adds of a rectangle.
double WorkOf(const KernelJob& job, const KernelTask& rectangle);

// Of a rectangle: its graph; where its tensors lie, but for the scale; and its means in scratch
// from `scratch` on, aligned to 16 bytes.
CudnnShape ShapeOf(const KernelJob& job, const KernelTask& rectangle);
CudnnTensors TensorsOf(const KernelJob& job, const KernelTask& rectangle, std::byte* scratch);
MeansAt MeansOf(const KernelJob& job, const KernelTask& rectangle, std::byte* scratch);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_PLAN_H_
