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

// Attention on a GPU by mma.sync, from sm_80 on: fp32, fp16 and bf16 inputs, head dimensions up to
// 256, forward and gradients. fp32 is multiplied by FMA; 16-bit inputs by tensor cores, with
// weights and dS rounded to the inputs' type; sums are fp32.
//
// Calls queue work and return; blocks of a call lie in the device's memory, and stay until it is
// done. What a call needs beside them are tables, at most the launcher's max_tables at a time: a
// larger call becomes several launches; and partials of chunks of keys, where few query rows see
// many (key_split.h), at most the launcher's partial_bytes. `stop` is asked before each of them,
// and `progress` counts blocks of threads as they are queued: what is queued runs to its end.
class CudaKernel : public AttentionKernel {
 public:
  struct Options {
    std::unique_ptr<Launcher> launcher;
    // Of the host, which find what each query row sees.
    int threads = 1;
    // Of what is queued at once (launch_cost.h).
    double max_launch_work = kMaxLaunchWork;
  };
  // INVALID_ARGUMENT for a number of threads that cannot be; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<CudaKernel>> Create(Options options);

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override;
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override;
  std::string Description() const override;
  // So many launches were of the kernels for sm_90a.
  int64_t hopper_launches() const { return hopper_launches_; }
  int64_t hopper_gradient_launches() const { return hopper_gradient_launches_; }
  // The kernel's, which keeps it.
  Launcher* launcher() const { return launcher_.get(); }

 private:
  absl::Status AttendChunks(const KernelJob& job, KvSplit cut, const KernelControl& control);
  absl::Status Attend(const KernelJob& job, absl::Span<const KernelTask> tasks,
                      const KernelControl& control);
  // Whether the kernel for sm_90a computes the call: then `maps` are its tasks', for the device.
  absl::StatusOr<bool> HopperTakes(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                   std::vector<std::byte>* maps);
  // Whether the driver takes the maps, which are for the device then.
  absl::StatusOr<bool> EncodeMaps(const std::vector<TensorMapSpec>& specs,
                                  std::vector<std::byte>* maps);

  struct GradientCall {
    CallView view;
    const KernelControl& control;
  };
  // Of what comes by for each side's own rows.
  struct GradientMaps {
    std::vector<std::byte> of_queries, of_keys;
  };
  absl::Status AddGradients(const KernelJob& job, absl::Span<const KernelTask> tasks,
                            const KernelControl& control);
  // As HopperTakes.
  absl::StatusOr<bool> HopperTakesGradients(const KernelJob& job,
                                            absl::Span<const KernelTask> tasks, GradientMaps* maps);
  // `side`: it alone; nullptr: all.
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
  PlanMemory memory_;  // Of whoever calls, as all else here.
  int64_t hopper_launches_ = 0, hopper_gradient_launches_ = 0;
  bool told_of_refusal_ = false;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDA_KERNEL_H_
