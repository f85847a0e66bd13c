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
#include "server/coordinator/state/group_table.h"
#include "server/coordinator/state/job_plan.h"
#include "server/coordinator/state/job_table.h"
#include "server/coordinator/state/memory_ledger.h"
#include "server/coordinator/state/run_table.h"
#include "server/coordinator/state/timers.h"
#include "server/coordinator/state/worker_table.h"

namespace annulus {

// The whole state of the coordinator, and the actions of the present event. The rules that change
// it are free functions in these files, in layers:
//     coordinator_state → worker_transitions → group_transitions → job_placement, admission →
//     run_transitions → kept_state_transitions → job_transitions → kept_state, run_completion →
//     CoordinatorTables
// A lower layer never calls a higher one. It sets a mark (doomed_*, *_again), which the end of the
// event handles (Settle in coordinator_state.cc).
struct CoordinatorTables {
  CoordinatorTables(CoordinatorOptions options, std::function<uint64_t()> random, PlanFunction plan,
                    absl::Time now);

  CoordinatorOptions options;
  std::function<uint64_t()> random;
  PlanFunction plan;
  absl::Time now;
  absl::Duration time_of_day_ahead;  // Offset of the time of day to `now`.

  const absl::Time started;
  int64_t term;
  bool restarted = false;  // A worker has seen an earlier term.
  bool draining = false;
  absl::Time drain_deadline = absl::InfiniteFuture();
  bool stopped = false;
  bool ready = false;

  WorkerTable workers;
  GroupTable groups;
  MemoryLedger ledger;
  FairQueue queue;
  FairShares shares;  // Shares of principals in segments.
  PredictionCorrector ways;
  JobTable jobs;
  RunTable runs;
  Timers timers;

  // Plans that are being made, by plan number, for a job or for a call (a dry run).
  struct Planning {
    int64_t job = 0;
    int64_t call = 0;
    int64_t bytes = 0;  // Bytes of a call's request; a job counts its own.
  };
  std::map<int64_t, Planning> plannings;
  int64_t last_plan = 0;
  // The number of segments issued so far.
  int64_t last_turn = 0;
  // Waiting jobs whose plan must be made again.
  std::set<int64_t> replan;
  bool planned_here = false;  // A plan was made inside this event.
  // Forward jobs whose state is awaited, held, or being freed.
  std::set<int64_t> keeping;

  // Marks: the family must be compared with the membership; waiting jobs, or runs, may advance.
  bool family_dirty = false;
  bool place_again = false;
  bool advance_again = false;
  // Kept states must be checked.
  bool kept_again = false;
  // Grows with every change of the inputs of plans: with the membership, and when a group fails to
  // form.
  int64_t membership_epoch = 0;
  // The latest incarnations that were lost in this term. The number is bounded; an incarnation that
  // is forgotten is recognised by its numbers.
  std::deque<std::string> lost_incarnations;
  // Jobs that have sent no event yet.
  std::vector<int64_t> unannounced;
  // Workers to be counted as lost, and groups to be aborted, with the reasons.
  std::vector<std::pair<int64_t, std::string>> doomed_workers;
  std::vector<std::pair<int64_t, absl::Status>> doomed_groups;

  std::vector<Action> actions;

  // Present and future groups (group_table.h).
  std::vector<std::vector<int64_t>> Family() const;
  // True if there are as many ready workers as a job needs: min_workers, at least one.
  bool enough_workers() const;
  // The number of jobs that wait for room or for their first plan.
  size_t queued_jobs() const;

  void Emit(Action action) { actions.push_back(std::move(action)); }
  // Cancels a plan that is being made. Unknown numbers are ignored.
  void ForgetPlan(int64_t plan);
  void Log(LogLevel level, absl::string_view job, std::string text);
  // Numbers the command, keeps it until it is acknowledged, and sends it if the worker is
  // connected. `spec` is the spec of a Reserve (Command).
  void Send(int64_t worker, control::v1::WorkerCommand message,
            std::shared_ptr<const std::string> spec = nullptr);
  control::v1::Generation GenerationOf(int64_t group) const;
  // Converts a time of the clock of `now` to a time of day.
  absl::Time TimeOfDay(absl::Time time) const { return time + time_of_day_ahead; }
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_COORDINATOR_TABLES_H_
