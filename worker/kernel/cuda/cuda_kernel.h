#ifndef ANNULUS_WORKER_KERNEL_CUDA_CUDA_KERNEL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_CUDA_KERNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/compute_pool.h"
#include "worker/kernel/cuda/launch/launch_cost.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/cuda/launch/launcher.h"
#include "worker/kernel/split_kv.h"

namespace annulus::cuda {

// Attention on a GPU by mma.sync, for sm_80 and later. Inputs are fp32, fp16 or bf16, head
// dimensions up to 256, forward and gradients. fp32 is multiplied by FMA; 16-bit inputs by tensor
// cores, with weights and dS rounded to the inputs' type. Sums are fp32.
//
// Calls queue work and return. The blocks of a call are in device memory and must stay until its
// work is done. A call also needs:
// - tables: at most the launcher's max_tables at a time. A larger call becomes several launches.
// - partials of chunks of keys, if few query rows see many keys (key_split.h): at most the
//   launcher's partial_bytes.
//
// The kernel reads `stop` before each launch. `progress` counts thread blocks as they are queued:
// queued work always runs to its end.
class CudaKernel : public AttentionKernel {
 public:
  struct Options {
    std::unique_ptr<Launcher> launcher;
    // Host threads that compute the visible keys of each query row.
    int threads = 1;
    // The limit of work that is queued at once (launch_cost.h).
    double max_launch_work = kMaxLaunchWork;
  };
  // Errors: INVALID_ARGUMENT for a number of threads that ComputePool refuses; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<CudaKernel>> Create(Options options);

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override;
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override;
  std::string Description() const override;
  // The number of launches of the kernels for sm_90a so far.
  int64_t hopper_launches() const { return hopper_launches_; }
  int64_t hopper_gradient_launches() const { return hopper_gradient_launches_; }
  // The kernel owns it.
  Launcher* launcher() const { return launcher_.get(); }

 private:
  absl::Status AttendChunks(const KernelJob& job, KvSplit cut, const KernelControl& control);
  absl::Status Attend(const KernelJob& job, absl::Span<const KernelTask> tasks,
                      const KernelControl& control);
  // True if the kernel for sm_90a can compute the call; `maps` then gets the encoded tensor maps of
  // its tasks.
  absl::StatusOr<bool> HopperTakes(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                   std::vector<std::byte>* maps);
  // True if the driver accepts the maps; `maps` then gets them encoded.
  absl::StatusOr<bool> EncodeMaps(const std::vector<TensorMapSpec>& specs,
                                  std::vector<std::byte>* maps);

  struct GradientCall {
    CallView view;
    const KernelControl& control;
  };
  // The maps of the tensors that are streamed past each side's own rows.
  struct GradientMaps {
    std::vector<std::byte> of_queries, of_keys;
  };
  absl::Status AddGradients(const KernelJob& job, absl::Span<const KernelTask> tasks,
                            const KernelControl& control);
  // Like HopperTakes, for gradients.
  absl::StatusOr<bool> HopperTakesGradients(const KernelJob& job,
                                            absl::Span<const KernelTask> tasks, GradientMaps* maps);
  // `side`: only that side; nullptr: all sides.
  absl::Status AddPortably(const GradientCall& call, const LaunchPieces& pieces,
                           const GradientSide* side);
  absl::Status AddByHopper(const GradientCall& call, const LaunchPieces& pieces, GradientSide side,
                           const std::vector<std::byte>& maps);
  absl::Status LaunchOp(const OpArgs& args);
  CudaKernel(Options options, std::unique_ptr<ComputePool> pool)
      : launcher_(std::move(options.launcher)),
        max_work_(options.max_launch_work),
        pool_(std::move(pool)) {}

  const std::unique_ptr<Launcher> launcher_;
  const double max_work_;
  const std::unique_ptr<ComputePool> pool_;
  PlanMemory memory_;  // Belongs to the owner thread, like all other members.
  int64_t hopper_launches_ = 0, hopper_gradient_launches_ = 0;
  bool told_of_refusal_ = false;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDA_KERNEL_H_
