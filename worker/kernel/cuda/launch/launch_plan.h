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

// Launches of the forward kernel, whose pieces SplitLaunches has cut: pure functions, no device.

// Which instantiation serves a job. Dimensions are at most kMaxDim, the type fp32, fp16 or bf16.
ForwardKind KindOf(const KernelJob& job);
int DimOf(const BlockLayout& layout);  // Its `dim`.

// For the kernel of sm_90a: of each task its keys and its values (kMapsOfTask).
std::vector<TensorMapSpec> MapsOf(const KernelJob& job, absl::Span<const KernelTask> tasks);

// A launch: `bytes` go to the device, and their address into args.tables. That kernel's need what
// became of MapsOf's, in `encoded`, by PutMaps before.
struct Launch {
  std::vector<std::byte> bytes;
  ForwardArgs args = {};
  int64_t blocks = 0;
};
struct TableLists;  // table_image.h

// What making a launch leaves to the next: the system takes longer to clear the pages of new memory
// than they take to be filled. One thread's.
class PlanMemory {
 public:
  PlanMemory();
  ~PlanMemory();
  struct Lists;
  Lists* lists() { return lists_.get(); }
  TableLists* tables();
  // Of a launch that is done with, for the next.
  std::vector<std::byte> bytes;

 private:
  const std::unique_ptr<Lists> lists_;
};

// `cached_bytes`: keys and values that a GPU's L2 cache keeps while many blocks go through them, as
// the kernel of sm_90a goes through the heads.
inline constexpr int64_t kCachedBytes = int64_t{32} << 20;
Launch MakeLaunch(const KernelJob& job, absl::Span<const KernelTask> tasks,
                  const VisibleRows& visible, const LaunchPieces& pieces, PlanMemory* memory,
                  bool hopper = false, int64_t cached_bytes = kCachedBytes);
// `to`: where the launch's tables have the maps of its pieces' tasks.
void PutMaps(absl::Span<const std::byte> encoded, const LaunchPieces& pieces, std::byte* to);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_PLAN_H_
