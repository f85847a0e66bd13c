#ifndef ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_graph.h"
#include "worker/kernel/cuda/ops/op_plan.h"

namespace annulus::cuda {

// The part of a call that goes to cuDNN: pure functions, no device.
//
// cuDNN multiplies masked values with weights of 0, so a NaN in a masked value would reach the
// result. So cuDNN gets only rectangles in which every row sees every key. Under a causal mask,
// these are the rectangles below the diagonal.

// The minimum size of a rectangle: a smaller one costs more in merging than cuDNN may save.
struct CudnnRule {
  int64_t least_rows = 256, least_keys = 2048;
  // Cuts are at shard-local multiples of it, which suits cuDNN's tiles.
  int64_t granule = 128;
  // For one rectangle's means (MeansOf).
  int64_t scratch_bytes = int64_t{64} << 20;
  // The limit of queued multiply-adds (WorkOf) before a wait for the device; one rectangle may
  // exceed it. A fraction of a second of a large GPU.
  double most_queued = 2.5e13;
  // Exclusive limit of a tensor's extent, from its first number to its last, gaps between rows
  // included. A larger tensor goes to the other kernel, which is known to address it correctly.
  int64_t most_numbers = int64_t{1} << 31;
};

// True if cuDNN can compute the job:
// - fp16 or bf16; head dimensions of multiples of 8 up to 256; a scale above 0.
// - No change of scores or weights but a mask.
// - Not deterministic: cuDNN has its own fold order.
bool CudnnServes(const KernelJob& job);

// The tasks of a call, cut and in order. Together they have the same visible pairs as the call.
// Heads with the same visibility are cut together; the visibility of other heads does not affect
// the cut.
struct CudnnCut {
  // Each has one block of queries, heads and accumulator, with Coverage::kFull. Their tensors have
  // the layout that cuDNN needs and at most the rule's numbers, and their means fit the scratch.
  std::vector<KernelTask> rectangles;
  std::vector<KernelTask> rest;
};
CudnnCut CutForCudnn(const KernelJob& job, absl::Span<const KernelTask> tasks,
                     const CudnnRule& rule);

// Multiply-adds of a rectangle.
double WorkOf(const KernelJob& job, const KernelTask& rectangle);

// For a rectangle: the shape of its graph; the addresses of its tensors, scale not set; its means
// in scratch, from `scratch` on, aligned to 16 bytes.
CudnnShape ShapeOf(const KernelJob& job, const KernelTask& rectangle);
CudnnTensors TensorsOf(const KernelJob& job, const KernelTask& rectangle, std::byte* scratch);
MeansAt MeansOf(const KernelJob& job, const KernelTask& rectangle, std::byte* scratch);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_PLAN_H_
