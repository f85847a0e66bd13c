#ifndef ANNULUS_WORKER_LANE_SOLO_LANE_H_
#define ANNULUS_WORKER_LANE_SOLO_LANE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "attention/planning/kernel_rates.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "base/work_queue.h"
#include "worker/lane/engine.h"
#include "worker/lane/lane_gauge.h"
#include "worker/lane/shard_run.h"

namespace annulus {

// Runs jobs of one rank, one after the other: prepares, copies in, computes, copies out, with no
// further command. A short job that comes alone runs on the thread that says it is complete: to
// wake another one would take about as long. Principals take turns as their jobs have become
// complete; whose turn it is runs the job that priority and waiting time, since its inputs are
// complete, put first (attention/spec/execution.h). Thread-safe.
class SoloLane {
 public:
  struct Options {
    Engine engine;
    std::shared_ptr<MemoryBudget> device_budget;
    // OutputReady or ShardFailed, on the thread that has run the job.
    std::function<void(control::v1::WorkerEvent)> report;
    size_t max_waiting = 4096;  // Jobs that are complete and wait for those before them.
    std::function<absl::Time()> now = SteadyNow;
    // What this worker's kernels take; empty: no job is short.
    std::vector<KernelRates> rates;
  };
  static absl::StatusOr<std::unique_ptr<SoloLane>> Create(Options options);
  // Stops what runs, waits for it and drops what waits. No Run() may begin any more.
  ~SoloLane();

  // Takes a shard in, to run when it is complete.
  void Add(ShardWork work);
  // Runs the shard, once: here and now where it is a short one and no other is known, else later on
  // the lane's thread. Nothing where none was added under this id, or it was released.
  void Run(const ShardId& id);
  // Lets go of a shard that waits before it returns, and stops one that runs: the lane lets go of
  // it soon.
  void Release(const ShardId& id);

  LaneGauge* gauge() { return &gauge_; }

 private:
  SoloLane(Options options, std::unique_ptr<Device> device,
           std::unique_ptr<AttentionKernel> kernel);
  // Runs what is ready, until nothing is.
  void Drain();
  // Leaves what becomes ready meanwhile to the lane's thread.
  void RunHere(const ShardWork& work);
  bool IsShort(const ShardWork& work) const;
  void DoRun(const ShardWork& work);
  // What runs from now on; nothing where none is ready.
  std::optional<ShardWork> Begin();
  ShardWork BeginLocked() REQUIRES(mutex_);
  void End();
  absl::StatusOr<ExecutionStats> Execute(const ShardWork& work);

  // A shard that shall run. The earlier its time, the earlier it runs.
  struct Ready {
    ShardId id;
    std::string principal;
    absl::Time time;
  };
  std::deque<Ready>::iterator Find(const ShardId& id) REQUIRES(mutex_);
  ShardId TakeNext() REQUIRES(mutex_);

  const Options options_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<AttentionKernel> kernel_;
  LaneGauge gauge_;
  ProgramMemo memo_;  // As the device and the kernel: of who drains.
  Mutex mutex_;
  CondVar idle_;
  // Not in the queue, so that a release frees a shard, and its place, whatever runs in front of it.
  std::map<ShardId, ShardWork> waiting_ GUARDED_BY(mutex_);
  std::deque<Ready> ready_ GUARDED_BY(mutex_);  // Of those that are complete: turns, in order.
  bool draining_ GUARDED_BY(mutex_) = false;    // Drain is posted, or somebody runs what is ready.
  bool here_ GUARDED_BY(mutex_) = false;        // A thread is in RunHere.
  std::optional<ShardId> running_ GUARDED_BY(mutex_);
  std::atomic<bool> stop_{false};  // Of what runs; written under the lock.
  WorkQueue queue_;                // Last: its thread ends first.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_SOLO_LANE_H_
