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
#include "worker/executor/staging_copies.h"
#include "worker/executor/step_binding.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

struct ExecutionStats {
  absl::Duration running;  // Total time in Run.
  // Time in Join after the kernels queued before it were done.
  absl::Duration exposed_communication;
  int64_t bytes_sent = 0;
};

// Runs one rank's program (RankProgram). One loop serves every strategy, because a strategy is
// data: a list of steps (attention/schedule/model/schedule_data.h) that
// attention/schedule/schedule.h makes. Owner thread: the lane (or solo) thread.
//
// One step, as RunSteps (executor.cc) runs it:
// 1. Births: accumulators that are first used in this step are set to the identity (StepBinder).
// 2. Transfers start: StartTransfers passes all sends and receives to Communicator::Start.
// 3. Tasks: Accumulate passes them to the kernel, normally in one call. They compute while the
//    transfers run, and touch no buffer that a transfer of this step writes.
// 4. Join: JoinTransfers waits until all transfers of the step are done.
// 5. Ops: Apply runs them on the received and computed blocks: merge, finish, delta, sink, add,
//    round.
//
// Kernels, copies and transfers of a GPU are queued on one Device. The host waits for the device at
// the end of each segment, not in each step.
//
// Example: forward attention with ring pass-KV, W = 3, no mask. Rank r has queries Qr and keys and
// values KVr. Neighbours are taken modulo 3. P is the rank's partial.
//
//   step  births  transfers                             tasks              ops
//   0     P := 0  KV(r) to r + 1, KV(r-1) from r - 1    P += Qr x KV(r)    -
//   1     -       KV(r-1) to r + 1, KV(r-2) from r - 1  P += Qr x KV(r-1)  -
//   2     -       -                                     P += Qr x KV(r-2)  finish P -> O
//
// CopyIn fills the buffers of Qr and KVr before step 0. CopyOut reads O after step 2. With a mask,
// a block travels only to ranks that need it (attention/schedule/strategies/ring_route.h). The
// other strategies are in attention/schedule/strategies/builders.h. The coordinator splits steps
// into segments (attention/schedule/passes/segment_steps.h); each Run call runs one segment.
//
// Errors:
// - The kernel fails, or the stop token cancels it: this rank loses its result. The group keeps its
//   communicator. Transfers continue, so peers do not wait in vain, but tasks and ops are skipped.
//   Run returns the failure at the end of this segment and of every later one (Note).
// - A peer's kernel fails: if ranks send computed data (ResultsTravel), a peer may have received
//   undefined bytes, so RankProgram::verdict_bytes is set. At the end of the last segment, the
//   ranks exchange one byte each: result or failure (ShareVerdicts). A rank that receives a failure
//   returns ABORTED. If only inputs travel, a peer's failure has no effect here.
// - The communicator fails (a peer is gone, a timeout, Abort): Run returns this error at once. The
//   communicator is poisoned and the group must be formed again.
// - The device faults: INTERNAL / DEVICE_FAULT replaces every other error. The process can no
//   longer use its device.
class Executor {
 public:
  // The executor borrows the pointers; the objects outlive it.
  struct Options {
    std::shared_ptr<const RankProgram> program;
    DeviceMemory memory;  // Size: program->memory_bytes().
    Device* device = nullptr;
    AttentionKernel* kernel = nullptr;
    Communicator* communicator = nullptr;  // nullptr for one rank.
    KernelControl control;
    // Limit of each Join. Run adds `patience` to it.
    absl::Duration step_timeout = absl::Seconds(30);
    // Limit of one kernel call (worker/executor/step_binding.h).
    int64_t max_call_intervals = kMaxCallIntervals;
  };
  explicit Executor(Options options);
  // Waits until the device has done all queued work.
  ~Executor();

  // Copies staging to the input buffers. Call before the first segment. Buffers that stay in
  // staging are not copied: Run reads and writes them there, so the memory of `staged` must outlive
  // the executor, and CopyOut gets the same `staged`. CANCELLED if the stop token is set. After a
  // failure no segment can run: the caller closes the communicator.
  absl::Status CopyIn(const StagedTensors& staged);

  // Runs steps [segment.step_begin, segment.step_end). Each Join may take Options::step_timeout +
  // `patience`. After OK or a kernel failure, the device has done all work of the segment. Errors,
  // in the order of checks:
  // - CopyIn's failure.
  // - FAILED_PRECONDITION: the segment does not begin where the last one ended, or ends after the
  //   schedule.
  // - INTERNAL / DEVICE_FAULT, even if something else failed first.
  // - The communicator's error.
  // - The first failure of the kernel, in this segment or an earlier one, or ABORTED if another
  //   rank has failed.
  absl::Status Run(const Segment& segment, absl::Duration patience = absl::ZeroDuration());

  // Copies the output buffers to staging and synchronizes. Errors, in the order of checks: the
  // first failure of Run's kernel; FAILED_PRECONDITION before the last segment has run; CANCELLED
  // if the stop token is set; the device's error.
  absl::Status CopyOut(const StagedTensors& staged);

  const ExecutionStats& stats() const { return stats_; }
  // True if Run failed because of the communicator, which is poisoned.
  bool communicator_failed() const { return communicator_failed_; }
  // True if Run failed because another rank reported a failure.
  bool peer_failed() const { return peer_failed_; }
  // The current step. Any thread.
  int32_t step() const { return step_.load(std::memory_order_relaxed); }

 private:
  absl::Status CopyFrom(const StagedTensors& staged);
  // Lets the kernel prepare for the segment's tasks, before its first transfer.
  void Prepare(const Segment& segment);
  absl::Status RunSteps(const Segment& segment);
  absl::Status StartTransfers(const BoundStep& step);
  absl::Status JoinTransfers();
  // Exchanges one verdict byte with every other rank and sets computed_ if one has failed.
  absl::Status ShareVerdicts();
  absl::Status SwapVerdicts(std::byte* verdicts);
  void Note(const absl::Status& computed);
  // One step's tasks, split into kernel calls.
  std::vector<std::vector<KernelTask>> CallsOf(std::vector<KernelTask> tasks) const;
  // Both do nothing after a failure. Apply checks the stop token before each op and counts each op
  // as progress.
  void Accumulate(std::vector<KernelTask> tasks);
  void Apply(const std::vector<KernelOp>& ops);

  const Options options_;
  const KernelJob job_;
  StepBinder binder_;
  absl::Status copied_;    // Result of CopyIn.
  absl::Status computed_;  // The first failure, or a device fault.
  bool communicator_failed_ = false;
  bool peer_failed_ = false;
  int32_t next_step_ = 0;
  absl::Duration patience_;  // Patience of the current segment.
  ExecutionStats stats_;
  std::atomic<int32_t> step_{0};
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_EXECUTOR_H_
