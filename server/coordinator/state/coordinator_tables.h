#ifndef ANNULUS_SERVER_COORDINATOR_STATE_COORDINATOR_TABLES_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_COORDINATOR_TABLES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "attention/planning/prediction_corrector.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/fair_queue.h"
#include "server/coordinator/state/fair_shares.h"
#include "server/coordinator/state/group_table.h"
#include "server/coordinator/state/job_plan.h"
#include "server/coordinator/state/job_table.h"
#include "server/coordinator/state/memory_ledger.h"
#include "server/coordinator/state/run_table.h"
#include "server/coordinator/state/timers.h"
#include "server/coordinator/state/worker_table.h"

namespace annulus {

// All that the coordinator knows, and the actions of the event at hand. The rules that change it
// are the free functions of the *_flow, job_life and run_end files, in layers:
//   state → worker_flow → group_flow → placement, admission → run_flow → kept_flow → job_life →
//   kept_state, run_end → CoordinatorTables
// A lower layer never calls a higher one: it leaves a mark (doomed, *_again) that the end of the
// event takes up.
struct CoordinatorTables {
  CoordinatorTables(CoordinatorOptions options, std::function<uint64_t()> random, PlanFunction plan,
                    absl::Time now);

  CoordinatorOptions options;
  std::function<uint64_t()> random;
  PlanFunction plan;
  absl::Time now;
  absl::Duration time_of_day_ahead;  // Of `now`.

  const absl::Time started;
  int64_t term;
  bool restarted = false;  // A worker knew an earlier term.
  bool draining = false;
  absl::Time drain_deadline = absl::InfiniteFuture();
  bool stopped = false;
  bool ready = false;

  WorkerTable workers;
  GroupTable groups;
  MemoryLedger ledger;
  FairQueue queue;
  FairShares shares;  // Of segments.
  PredictionCorrector ways;
  JobTable jobs;
  RunTable runs;
  Timers timers;

  // Plans being made: by plan number, for a job or for a call.
  struct Planning {
    int64_t job = 0;
    int64_t call = 0;
    int64_t bytes = 0;  // Of a call's request; a job counts its own.
  };
  std::map<int64_t, Planning> plannings;
  int64_t last_plan = 0;
  // Segments issued so far.
  int64_t last_turn = 0;
  // Waiting jobs whose plan must be made again.
  std::set<int64_t> replan;
  bool planned_here = false;  // A plan was made inside this event.
  // Forward jobs whose state is awaited, held, or on its way out.
  std::set<int64_t> keeping;

  // Marks. The family must be compared with the membership; waiting jobs, or runs, may move on.
  bool family_dirty = false;
  bool place_again = false;
  bool advance_again = false;
  // Kept states must be looked at.
  bool kept_again = false;
  // Grows with every change of what plans are made from: of the membership, and when a group turns
  // out not to form.
  int64_t membership_epoch = 0;
  // The last incarnations that were lost in this term. A few: one that is forgotten is known by its
  // numbers.
  std::deque<std::string> lost_incarnations;
  // Jobs that have sent no event yet.
  std::vector<int64_t> unannounced;
  // Workers to be counted as lost and groups to be aborted, and why.
  std::vector<std::pair<int64_t, std::string>> doomed_workers;
  std::vector<std::pair<int64_t, absl::Status>> doomed_groups;

  std::vector<Action> actions;

  // Of groups that there are or will be, see GroupFamily.
  std::vector<std::vector<int64_t>> Family() const;
  // As many ready workers as a job must find; at least one.
  bool enough_workers() const;
  // Jobs that wait: for room, or for their first plan.
  size_t queued_jobs() const;

  void Emit(Action action) { actions.push_back(std::move(action)); }
  // What is being planned is not needed; a plan that is not known is left alone.
  void ForgetPlan(int64_t plan);
  void Log(LogLevel level, absl::string_view job, std::string text);
  // Numbers the command, keeps it until it is acknowledged, and sends it if the worker is
  // connected. `spec`: of a Reserve, see Command.
  void Send(int64_t worker, control::v1::WorkerCommand message,
            std::shared_ptr<const std::string> spec = nullptr);
  control::v1::Generation GenerationOf(int64_t group) const;
  // A time by the clock of `now` as a time of day.
  absl::Time TimeOfDay(absl::Time time) const { return time + time_of_day_ahead; }
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_COORDINATOR_TABLES_H_
