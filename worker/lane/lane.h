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

// Runs group jobs: one thread owns every communicator and does ConnectGroup, RunSegment and
// CloseGroup in the order of the commands, so that the lanes of all workers are projections of one
// global order. What needs no order (building schedules, opening communicators) is done beside it.
// AbortGroup overtakes. Thread-safe; nothing blocks the caller, and answers are reports.
class Lane {
 public:
  struct Options {
    Engine engine;
    std::shared_ptr<MemoryBudget> device_budget;
    // Prepared, SegmentDone, OutputReady, ShardFailed, GroupOpened, GroupConnected, GroupBroken,
    // GroupClosed; on threads of the lane.
    std::function<void(control::v1::WorkerEvent)> report;
    std::function<absl::Time()> now;
    // Longest time that a step's transfers may take beyond its tasks, where a segment's command
    // does not ask for more.
    absl::Duration step_timeout = absl::Seconds(30);
    // Commands that may wait; one more breaks its group.
    size_t max_waiting = 4096;
  };

  static absl::StatusOr<std::unique_ptr<Lane>> Create(Options options);
  // Aborts all groups, and waits for its threads.
  ~Lane();

  // Answered by Prepared or ShardFailed.
  void Prepare(ShardWork work);
  // OpenGroup, ConnectGroup, RunSegment, CloseGroup or AbortGroup.
  void Command(const control::v1::WorkerCommand& command);
  // Lets go of a shard, after what was asked of it before. Does nothing to others.
  void Release(const ShardId& id);

  LaneGauge* gauge() { return &gauge_; }
  // Of what is done beside the lane.
  LaneGauge* side_gauge() { return &side_gauge_; }
  const LaneGroups& groups() const { return groups_; }

 private:
  Lane(Options options, std::unique_ptr<Device> device, std::unique_ptr<AttentionKernel> kernel);

  // Side thread.
  void DoPrepare(const ShardWork& work);
  void DoOpen(const control::v1::OpenGroup& open);
  // Lane thread.
  void DoConnect(const control::v1::ConnectGroup& connect);
  void DoRun(const control::v1::RunSegment& command);
  void DoClose(const GroupId& id);
  // Starts the run where that has not been done.
  void RunNext(std::shared_ptr<ShardRun> run, Communicator* communicator,
               const control::v1::RunSegment& command, absl::Duration patience);
  void RunOn(ShardRun* run, const control::v1::RunSegment& command, absl::Duration patience);
  absl::Status MakeExecutor(ShardRun* run, Communicator* communicator);
  void Finish(ShardRun* run);
  void Fail(ShardRun* run, const absl::Status& why);
  // `at` says in which segment, `step` where in it; null: in none.
  void Break(const GroupId& id, const absl::Status& why,
             const control::v1::RunSegment* at = nullptr, int32_t step = 0);
  // Any thread.
  void Abort(const GroupId& id);
  class Current;  // What the lane is at, for as long as it lives.

  const Options options_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<AttentionKernel> kernel_;
  LaneGroups groups_;
  LaneGauge gauge_, side_gauge_;
  std::map<ShardId, std::shared_ptr<ShardRun>> runs_;  // Lane thread.
  ProgramMemo memo_;                                   // Side thread.

  Mutex known_mutex_;
  // Prepared, perhaps in vain, and not released.
  std::set<ShardId> known_ GUARDED_BY(known_mutex_);

  Mutex current_mutex_;
  GroupId current_group_ GUARDED_BY(current_mutex_);
  ShardRun* current_run_ GUARDED_BY(current_mutex_) = nullptr;

  // Last, so that their threads end first; the side thread posts to the lane.
  WorkQueue lane_;
  WorkQueue side_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_LANE_H_
