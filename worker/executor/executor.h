#ifndef ANNULUS_WORKER_EXECUTOR_EXECUTOR_H_
#define ANNULUS_WORKER_EXECUTOR_EXECUTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/schedule/passes/segment_steps.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/executor/program.h"
#include "worker/executor/split_calls.h"
#include "worker/executor/staging_copies.h"
#include "worker/executor/step_binding.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

struct ExecutionStats {
  absl::Duration running;                // In Run, all told.
  absl::Duration exposed_communication;  // In Join, with the kernels before it done.
  int64_t bytes_sent = 0;
};

// Runs one rank's program: ONE loop for every schedule. Owner thread: the lane (or solo) thread.
//
// A failure of the kernel, CANCELLED by its stop token included, costs this rank its result, but
// not the group its communicator: transfers go on without tasks, and Run returns the failure at the
// end of this segment and of those that follow. Where ranks send what they have computed
// (RankProgram::verdict_bytes), it costs all of them their results: at the end of the last
// segment each tells the others whether it has failed, and one that hears so has failed, too. Else
// its peers lose nothing. A failure of the communicator ends Run at once.
class Executor {
 public:
  // Pointers are borrowed and outlive the executor.
  struct Options {
    std::shared_ptr<const RankProgram> program;
    DeviceMemory memory;  // program->memory_bytes()
    Device* device = nullptr;
    AttentionKernel* kernel = nullptr;
    Communicator* communicator = nullptr;  // nullptr for one rank.
    KernelControl control;
    // Longest time that a step's transfers may take beyond its tasks, and the segment's patience.
    absl::Duration step_timeout = absl::Seconds(30);
    // What rows see in one call of the kernel (worker/executor/split_calls.h).
    int64_t max_call_intervals = kMaxCallIntervals;
  };
  explicit Executor(Options options);
  // Waits for what is still queued.
  ~Executor();

  // Staging → input buffers, before the first segment. CANCELLED by the stop token. What stays in
  // staging is read and written there by Run: `staged` is the same for CopyOut, and its memory
  // outlives the executor. A failure ends the run: there is nothing to send to peers, and the
  // caller ends the communicator.
  absl::Status CopyIn(const StagedTensors& staged);

  // Runs steps [segment.step_begin, segment.step_end), each with so much more patience for its
  // transfers than Options::step_timeout. Segments run in order
  // (FAILED_PRECONDITION); none where CopyIn has failed (its failure). ABORTED where another rank
  // has failed. When it returns OK or with the kernel's failure, the device has done all that the
  // segment asked of it. INTERNAL / DEVICE_FAULT, whatever failed before it.
  absl::Status Run(const Segment& segment, absl::Duration patience = absl::ZeroDuration());

  // Output buffers → staging, after the last segment (FAILED_PRECONDITION); ends with Synchronize.
  // The first failure of the kernel, or CANCELLED, when there is no result or the stop token says
  // so.
  absl::Status CopyOut(const StagedTensors& staged);

  const ExecutionStats& stats() const { return stats_; }
  // Run's failure was the communicator's: it is poisoned.
  bool communicator_failed() const { return communicator_failed_; }
  // Run's failure was another rank's, which tells of it.
  bool peer_failed() const { return peer_failed_; }
  // The step being run, readable from any thread.
  int32_t step() const { return step_.load(std::memory_order_relaxed); }

 private:
  absl::Status CopyFrom(const StagedTensors& staged);
  // Before the segment's first transfer.
  void Prepare(const Segment& segment);
  absl::Status RunSteps(const Segment& segment);
  absl::Status StartTransfers(const BoundStep& step);
  absl::Status JoinTransfers();
  // Tells the other ranks whether this one has failed, and hears it of them.
  absl::Status ShareVerdicts();
  absl::Status SwapVerdicts(std::byte* verdicts);
  void Note(const absl::Status& computed);
  // One step's tasks, as the kernel is given them.
  std::vector<std::vector<KernelTask>> CallsOf(std::vector<KernelTask> tasks) const;
  // These do nothing once the kernel has failed. Between ops the control is asked; each counts.
  void Accumulate(std::vector<KernelTask> tasks);
  void Apply(const std::vector<KernelOp>& ops);

  const Options options_;
  const KernelJob job_;
  StepBinder binder_;
  absl::Status copied_;    // CopyIn's.
  absl::Status computed_;  // The first failure, or the device's fault.
  bool communicator_failed_ = false;
  bool peer_failed_ = false;
  int32_t next_step_ = 0;
  absl::Duration patience_;  // Of the segment.
  ExecutionStats stats_;
  std::atomic<int32_t> step_{0};
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_EXECUTOR_H_
