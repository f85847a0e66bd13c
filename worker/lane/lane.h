#ifndef ANNULUS_WORKER_LANE_LANE_H_
#define ANNULUS_WORKER_LANE_LANE_H_

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "base/mutex.h"
#include "base/work_queue.h"
#include "worker/lane/engine.h"
#include "worker/lane/lane_gauge.h"
#include "worker/lane/lane_groups.h"
#include "worker/lane/shard_run.h"

namespace annulus {

// Runs group jobs. One thread owns every communicator and executes ConnectGroup, RunSegment and
// CloseGroup in the order of the coordinator's commands. All workers run the commands of the groups
// that they share in the same order, so none waits for another in a circle. Work that needs no
// order (building schedules, opening communicators) runs on a side thread. AbortGroup overtakes all
// others. Thread-safe; callers are never blocked; results are reports.
class Lane {
 public:
  struct Options {
    Engine engine;
    std::shared_ptr<MemoryBudget> device_budget;
    // Receives Prepared, SegmentDone, OutputReady, ShardFailed, GroupOpened, GroupConnected,
    // GroupBroken and GroupClosed, on the lane's threads.
    std::function<void(control::v1::WorkerEvent)> report;
    std::function<absl::Time()> now;
    // Limit of each Join of a step, unless the segment's command asks for more.
    absl::Duration step_timeout = absl::Seconds(30);
    // Limit of waiting commands. One more breaks its group.
    size_t max_waiting = 4096;
  };

  static absl::StatusOr<std::unique_ptr<Lane>> Create(Options options);
  // Aborts all groups and waits for the threads.
  ~Lane();

  // Answered by Prepared or ShardFailed.
  void Prepare(ShardWork work);
  // Executes OpenGroup, ConnectGroup, RunSegment, CloseGroup or AbortGroup.
  void Command(const control::v1::WorkerCommand& command);
  // Releases a shard after its earlier commands. No effect on unknown shards.
  void Release(const ShardId& id);

  LaneGauge* gauge() { return &gauge_; }
  // Shows the side thread's work.
  LaneGauge* side_gauge() { return &side_gauge_; }
  const LaneGroups& groups() const { return groups_; }

 private:
  Lane(Options options, std::unique_ptr<Device> device, std::unique_ptr<AttentionKernel> kernel);

  // On the side thread.
  void DoPrepare(const ShardWork& work);
  void DoOpen(const control::v1::OpenGroup& open);
  // On the lane thread.
  void DoConnect(const control::v1::ConnectGroup& connect);
  void DoRun(const control::v1::RunSegment& command);
  void DoClose(const GroupId& id);
  // Runs the next segment. Creates the executor first if this is the run's first segment.
  void RunNext(std::shared_ptr<ShardRun> run, Communicator* communicator,
               const control::v1::RunSegment& command, absl::Duration patience);
  void RunOn(ShardRun* run, const control::v1::RunSegment& command, absl::Duration patience);
  absl::Status MakeExecutor(ShardRun* run, Communicator* communicator);
  void Finish(ShardRun* run);
  void Fail(ShardRun* run, const absl::Status& why);
  // Aborts and destroys a group and reports GroupBroken. `at` and `step` give the segment and step
  // of the failure; nullptr if it was in none.
  void Break(const GroupId& id, const absl::Status& why,
             const control::v1::RunSegment* at = nullptr, int32_t step = 0);
  // Any thread.
  void Abort(const GroupId& id);
  class Current;  // Marks the lane's current group and run during its lifetime.

  const Options options_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<AttentionKernel> kernel_;
  LaneGroups groups_;
  LaneGauge gauge_, side_gauge_;
  std::map<ShardId, std::shared_ptr<ShardRun>> runs_;  // Lane thread only.
  ProgramMemo memo_;                                   // Side thread only.

  Mutex known_mutex_;
  // Shards for which Prepare was called, successfully or not, and that are not released.
  std::set<ShardId> known_ GUARDED_BY(known_mutex_);

  Mutex current_mutex_;
  GroupId current_group_ GUARDED_BY(current_mutex_);
  ShardRun* current_run_ GUARDED_BY(current_mutex_) = nullptr;

  // Last members, so that their threads end first. The side thread posts to the lane.
  WorkQueue lane_;
  WorkQueue side_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_LANE_H_
