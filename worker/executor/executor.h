#ifndef ANNULUS_WORKER_EXECUTOR_EXECUTOR_H_
#define ANNULUS_WORKER_EXECUTOR_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/segment.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/executor/program.h"
#include "worker/executor/staging.h"
#include "worker/executor/step_binding.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

struct ExecutionStats {
  absl::Duration running;                // In Run, all told.
  absl::Duration exposed_communication;  // In Join, with the kernels before it done.
  int64_t bytes_sent = 0;
  int64_t tasks = 0;
};

// Runs one rank's program: ONE loop for every schedule. Owner thread: the lane (or solo) thread.
//
// A failure of the kernel, CANCELLED by its stop token included, costs this rank its result, but
// not its peers theirs: the segment's transfers go on without tasks, the communicator stays usable,
// and Run returns the failure at the segment's end. A failure of the communicator ends Run at once.
class Executor {
 public:
  // Pointers are borrowed and outlive the executor.
  struct Options {
    std::shared_ptr<const RankProgram> program;
    DeviceMemory memory;  // placement.arena_bytes
    Device* device = nullptr;
    AttentionKernel* kernel = nullptr;
    Communicator* communicator = nullptr;  // nullptr for one rank.
    KernelControl control;
    // Longest time that a step's transfers may take beyond its tasks.
    absl::Duration step_timeout = absl::Seconds(30);
  };
  explicit Executor(Options options);
  // Waits for what is still queued.
  ~Executor();

  // Staging → input buffers, before the first segment. CANCELLED by the stop token. What stays in
  // staging is read and written there by Run: `staged` is the same for CopyOut, and its memory
  // outlives the executor.
  absl::Status CopyIn(const StagedTensors& staged);

  // Runs steps [segment.step_begin, segment.step_end). Segments run in order
  // (FAILED_PRECONDITION). With `transfers_only`, moves what the steps say and computes nothing, so
  // that ranks stay in step after a cancel; from then on there is no result. When it returns OK or
  // with the kernel's failure, the device has done all that the segment asked of it.
  absl::Status Run(const Segment& segment, bool transfers_only);

  // Output buffers → staging, after the last segment (FAILED_PRECONDITION); ends with Synchronize.
  // The first failure of the kernel, or CANCELLED, when there is no result or the stop token says
  // so.
  absl::Status CopyOut(const StagedTensors& staged);

  const ExecutionStats& stats() const { return stats_; }
  // Run's failure was the communicator's: it is poisoned.
  bool communicator_failed() const { return communicator_failed_; }
  // The step being run, readable from any thread.
  int32_t step() const { return step_.load(std::memory_order_relaxed); }

 private:
  absl::Status RunSteps(const Segment& segment);
  absl::Status StartTransfers(const BoundStep& step);
  absl::Status JoinTransfers();
  // These do nothing once the kernel has failed.
  void Accumulate(const std::vector<KernelTask>& tasks);
  void Apply(const std::vector<KernelOp>& ops);

  const Options options_;
  const KernelJob job_;
  StepBinder binder_;
  absl::Status computed_;  // The kernel's first failure.
  bool communicator_failed_ = false;
  int32_t next_step_ = 0;
  ExecutionStats stats_;
  std::atomic<int32_t> step_{0};
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_EXECUTOR_H_
