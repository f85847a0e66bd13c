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

// Runs jobs of one rank, one after another: prepare, copy in, compute, copy out, without further
// commands. A short job that is alone runs on the thread that reports it complete, because waking
// another thread would take about as long. Principals alternate in the order in which their jobs
// became complete. For the principal whose turn it is, the job with the earliest time runs first:
// the time of completion minus a bonus for its priority (attention/spec/execution.h). Thread-safe.
class SoloLane {
 public:
  struct Options {
    Engine engine;
    std::shared_ptr<MemoryBudget> device_budget;
    // Receives OutputReady or ShardFailed, on the thread that ran the job.
    std::function<void(control::v1::WorkerEvent)> report;
    size_t max_waiting = 4096;  // Limit of complete jobs that wait.
    std::function<absl::Time()> now = SteadyNow;
    // Rates of this worker's kernels. Empty: no job counts as short.
    std::vector<KernelRates> rates;
  };
  static absl::StatusOr<std::unique_ptr<SoloLane>> Create(Options options);
  // Stops the current run, waits for it, and drops waiting jobs. Run must not be called any more.
  ~SoloLane();

  // Accepts a shard; Run starts it when it is complete.
  void Add(ShardWork work);
  // Runs the shard once. A short job runs here if no other job is known; otherwise the job runs
  // later on the lane's thread. No effect if the shard was not added or was released.
  void Run(const ShardId& id);
  // Drops a waiting shard before it returns. Stops a running shard, which is released soon.
  void Release(const ShardId& id);

  LaneGauge* gauge() { return &gauge_; }

 private:
  SoloLane(Options options, std::unique_ptr<Device> device,
           std::unique_ptr<AttentionKernel> kernel);
  // Runs all ready shards.
  void Drain();
  // Shards that become ready meanwhile are left to the lane's thread.
  void RunHere(const ShardWork& work);
  bool IsShort(const ShardWork& work) const;
  void DoRun(const ShardWork& work);
  // Takes the next shard and marks it as running. nullopt if none is ready.
  std::optional<ShardWork> Begin();
  ShardWork BeginLocked() REQUIRES(mutex_);
  void End();
  absl::StatusOr<ExecutionStats> Execute(const ShardWork& work);

  // A complete shard. The shard with the earliest `time` runs first.
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
  ProgramMemo memo_;  // Used only by the thread that drains, like the device and the kernel.
  Mutex mutex_;
  CondVar idle_;
  // Not in the queue's closures, so that a release frees a shard and its place even while another
  // runs.
  std::map<ShardId, ShardWork> waiting_ GUARDED_BY(mutex_);
  // Complete shards, in the order of the principals' turns.
  std::deque<Ready> ready_ GUARDED_BY(mutex_);
  // True if Drain is posted, or a thread runs ready shards.
  bool draining_ GUARDED_BY(mutex_) = false;
  bool here_ GUARDED_BY(mutex_) = false;  // True while a thread is in RunHere.
  std::optional<ShardId> running_ GUARDED_BY(mutex_);
  std::atomic<bool> stop_{false};  // Stops the current run. Written under the lock.
  WorkQueue queue_;                // The last member: its thread ends first.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_SOLO_LANE_H_
