#ifndef ANNULUS_SERVER_COORDINATOR_COORDINATOR_STATE_H_
#define ANNULUS_SERVER_COORDINATOR_COORDINATOR_STATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/job_plan.h"

namespace annulus {

struct CoordinatorTables;

// The coordinator: a deterministic state machine. Membership, groups, admission, queue, jobs and
// retries are decided here and nowhere else. It has no threads, no clock and no gRPC. A driver
// (server/services/coordinator_loop.h) passes in events with their times and performs the returned
// actions in order. Equal events, times and random numbers give equal actions.
//
// Steps of an event (Handle and Settle in coordinator_state.cc):
// - Timers that are due run first (OnTimer).
// - Dispatcher applies the event to the tables (state/coordinator_tables.h). A function that needs
//   work of a higher layer sets a mark there.
// - Settle repeats these steps until no mark is set: ExecuteDoomed loses workers and aborts groups
//   that are marked; ReconcileGroups (group_transitions.h); SettleKept (kept_state_transitions.h);
//   PlanWaitingJobs (admission.h); PlaceJobs (job_placement.h); AdvanceRuns (run_transitions.h);
//   ReleaseLeaving (worker_transitions.h).
// - AnnounceJobs, ForgetJobs, UpdateReadiness and StopIfDrained run once at the end.
//
// Life of a worker (worker_transitions.h): OnWorkerReported registers it, takes its beats and
// passes on its events. A broken stream makes it suspect (OnWorkerGone). It is lost when its lease
// runs out (OnWorkerTimer, LoseWorker). Its runs are then lost and its groups abort.
//
// Life of a job:
// - OnRunJob (admission.h) checks it, makes its plan or emits action::MakePlan, and Enqueue
//   (job_transitions.h) puts it into the queue.
// - PlaceJobs reserves memory on all ranks, sends Reserve to the workers and `placed` to the
//   client. This starts a run (state/run_table.h).
// - OnShardEvent (run_transitions.h) takes the reports of shards. When all inputs have arrived, a
//   solo run starts by itself. A run of a group gets Prepare and its segments from PrepareRuns and
//   IssueSegments (segment_scheduler.h).
// - When all outputs have been fetched, EndJob (job_transitions.h) ends the job, and HaltRun
//   (run_completion.h) frees its shards. SettleState (kept_state.h) keeps them if the job keeps its
//   state.
// - After a loss, LoseRun (run_transitions.h) halts the run, and RunAgain (job_transitions.h)
//   queues the job again or ends it (GROUP_LOST).
//
// Not thread-safe: one owner thread.
class CoordinatorState {
 public:
  // `random` gives job ids; in production it must be unpredictable. Handle calls `plan` for small
  // requests (MakeJobPlan, or a substitute).
  CoordinatorState(CoordinatorOptions options, std::function<uint64_t()> random, PlanFunction plan,
                   absl::Time now);
  ~CoordinatorState();

  // Offset of the time of day to the clock of `now`; 0 at first. Only tickets and times in answers
  // use it.
  void SetTimeOfDay(absl::Duration ahead);

  // Applies the event and the time that has passed, and returns the actions. Time does not go back:
  // an earlier `now` counts as the latest one.
  std::vector<Action> Handle(Event event, absl::Time now);

  // The time by which Handle(Tick) must be called; InfiniteFuture if time alone changes nothing.
  absl::Time NextWakeup() const;

  // Read access for tests.
  const CoordinatorTables& tables() const { return *core_; }

 private:
  std::unique_ptr<CoordinatorTables> core_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_COORDINATOR_STATE_H_
