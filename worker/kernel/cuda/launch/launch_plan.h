#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_PLAN_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/split_launches.h"
#include "worker/kernel/cuda/launch/tensor_map.h"
#include "worker/kernel/cuda/launch/visible_rows.h"

namespace annulus::cuda {

// Launches of the forward kernel for pieces that SplitLaunches has cut: pure functions, no device.

// The instantiation that serves a job. Requires: dimensions at most kMaxDim; type fp32, fp16 or
// bf16.
ForwardKind KindOf(const KernelJob& job);
// The `dim` of KindOf: the larger of the two dimensions, rounded up to 64, 128 or 256.
int DimOf(const BlockLayout& layout);

// For the kernel for sm_90a: the maps of each task's keys and values (kMapsOfTask).
std::vector<TensorMapSpec> MapsOf(const KernelJob& job, absl::Span<const KernelTask> tasks);

// A launch. Upload `bytes` and store their device address in args.tables. For the kernel for
// sm_90a, first put the encoded MapsOf maps into `bytes` with PutMaps.
struct Launch {
  std::vector<std::byte> bytes;
  ForwardArgs args = {};
  int64_t blocks = 0;
};
struct TableLists;  // table_image.h

// Memory that one launch plan leaves to the next: the system takes longer to clear new pages than
// the plan takes to fill them. For one thread.
class PlanMemory {
 public:
  PlanMemory();
  ~PlanMemory();
  struct Lists;
  Lists* lists() { return lists_.get(); }
  TableLists* tables();
  // The bytes of a finished launch, for reuse.
  std::vector<std::byte> bytes;

 private:
  const std::unique_ptr<Lists> lists_;
};

// `cached_bytes`: keys and values that stay in a GPU's L2 cache while many blocks go through them.
// The kernel for sm_90a goes through the heads in such portions.
inline constexpr int64_t kCachedBytes = int64_t{32} << 20;
Launch MakeLaunch(const KernelJob& job, absl::Span<const KernelTask> tasks,
                  const VisibleRows& visible, const LaunchPieces& pieces, PlanMemory* memory,
                  bool hopper = false, int64_t cached_bytes = kCachedBytes);
// Copies the maps of the pieces' tasks from `encoded` to `to`, the maps of the launch's tables.
void PutMaps(absl::Span<const std::byte> encoded, const LaunchPieces& pieces, std::byte* to);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_PLAN_H_
