#ifndef ANNULUS_WORKER_LANE_SOLO_LANE_H_
#define ANNULUS_WORKER_LANE_SOLO_LANE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "annulus/control/v1/control.pb.h"
#include "base/mutex.h"
#include "worker/lane/engine.h"
#include "worker/lane/lane_gauge.h"
#include "worker/lane/shard_run.h"
#include "worker/lane/work_queue.h"

namespace annulus {

// Runs jobs of one rank, one after the other: prepares, copies in, computes, copies out, with no
// further command. Thread-safe.
class SoloLane {
 public:
  struct Options {
    Engine engine;
    std::shared_ptr<MemoryBudget> device_budget;
    // OutputReady or ShardFailed, on the lane's thread.
    std::function<void(control::v1::WorkerEvent)> report;
    size_t max_waiting = 4096;
  };
  static absl::StatusOr<std::unique_ptr<SoloLane>> Create(Options options);
  // Stops what runs and drops what waits.
  ~SoloLane();

  void Run(ShardWork work);
  // Stops it, running or waiting; the lane lets go of the shard soon.
  void Release(const ShardId& id);

  LaneGauge* gauge() { return &gauge_; }

 private:
  using StopFlag = std::shared_ptr<std::atomic<bool>>;

  SoloLane(Options options, std::unique_ptr<Device> device,
           std::unique_ptr<AttentionKernel> kernel);
  void DoRun(const ShardWork& work, const StopFlag& stop);
  absl::StatusOr<ExecutionStats> Execute(const ShardWork& work, const std::atomic<bool>* stop);

  const Options options_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<AttentionKernel> kernel_;
  LaneGauge gauge_;
  Mutex mutex_;
  std::map<ShardId, StopFlag> stops_ GUARDED_BY(mutex_);
  WorkQueue queue_;  // Last: its thread ends first.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_SOLO_LANE_H_
