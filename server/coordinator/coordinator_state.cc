#include "server/coordinator/coordinator_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/group_transitions.h"
#include "server/coordinator/job_placement.h"
#include "server/coordinator/job_transitions.h"
#include "server/coordinator/kept_state_transitions.h"
#include "server/coordinator/queries.h"
#include "server/coordinator/run_completion.h"
#include "server/coordinator/run_transitions.h"
#include "server/coordinator/state/coordinator_tables.h"
#include "server/coordinator/state/errors.h"
#include "server/coordinator/worker_transitions.h"

namespace annulus {
namespace {

constexpr TimerKey kRetentionTimer = {TimerKey::Kind::kRetention, 0};
constexpr TimerKey kDrainTimer = {TimerKey::Kind::kDrain, 0};

void EndAllJobs(CoordinatorTables& tables) {
  for (auto& [number, job] : tables.jobs.all()) {
    EndJob(tables, job, v1::Job::STATE_FAILED, DrainingError(tables.options.retry_after));
  }
}

void OnTimer(CoordinatorTables& tables, TimerKey key) {
  switch (key.kind) {
    case TimerKey::Kind::kWorker:
      return OnWorkerTimer(tables, key.number);
    case TimerKey::Kind::kGroup:
      return OnGroupTimer(tables, key.number);
    case TimerKey::Kind::kFormation:
      tables.family_dirty = true;
      return;
    case TimerKey::Kind::kJob:
      return OnJobTimer(tables, key.number);
    case TimerKey::Kind::kRun:
      return OnRunTimer(tables, key.number);
    case TimerKey::Kind::kDrain:
      return EndAllJobs(tables);
    case TimerKey::Kind::kKept:
      return OnKeptTimer(tables, key.number);
    case TimerKey::Kind::kRetention:
    case TimerKey::Kind::kReadiness:
      return;
  }
}

void StartDrain(CoordinatorTables& tables) {
  if (std::exchange(tables.draining, true)) return;
  tables.kept_again = true;
  tables.drain_deadline = tables.now + tables.options.drain_grace;
  tables.timers.Set(kDrainTimer, tables.drain_deadline);
}

struct Dispatcher {
  CoordinatorTables& tables;
  void operator()(const event::WorkerReported& e) { OnWorkerReported(tables, e); }
  void operator()(const event::WorkerGone& e) { OnWorkerGone(tables, e.connection); }
  void operator()(const event::RunJob& e) { OnRunJob(tables, e); }
  void operator()(const event::PlanJob& e) { OnPlanJob(tables, e); }
  void operator()(const event::WatchJob& e) { OnWatchJob(tables, e); }
  void operator()(const event::GetJob& e) { OnGetJob(tables, e); }
  void operator()(const event::CancelJob& e) { OnCancelJob(tables, e); }
  void operator()(const event::ReleaseState& e) { OnReleaseState(tables, e); }
  void operator()(const event::ListJobs& e) { OnListJobs(tables, e); }
  void operator()(const event::GetServerInfo& e) { OnGetServerInfo(tables, e); }
  void operator()(const event::CallGone& e) { OnCallGone(tables, e.call); }
  void operator()(const event::Planned& e) { OnPlanned(tables, e); }
  void operator()(const event::Tick&) {}
  void operator()(const event::Drain&) { StartDrain(tables); }
};

void ExecuteDoomed(CoordinatorTables& tables) {
  while (!tables.doomed_groups.empty() || !tables.doomed_workers.empty()) {
    for (const auto& [group, cause] : std::exchange(tables.doomed_groups, {})) {
      AbortGroup(tables, group, cause);
    }
    for (const auto& [worker, cause] : std::exchange(tables.doomed_workers, {})) {
      const WorkerRecord* record = tables.workers.Find(worker);
      if (record != nullptr) LoseWorker(tables, worker, cause, LeaseExpiredError(record->slot()));
    }
  }
}

void UpdateReadiness(CoordinatorTables& tables) {
  const bool settled = !tables.restarted || tables.now >= tables.started + tables.options.lease;
  const bool ready = !tables.draining && settled && tables.enough_workers();
  if (ready == tables.ready) return;
  tables.ready = ready;
  tables.Emit(action::SetReady{ready});
}

void ForgetJobs(CoordinatorTables& tables) {
  const absl::Duration keep = tables.options.job_retention;
  const absl::Time next = tables.jobs.Forget(tables.now - keep, tables.options.max_retained_jobs);
  tables.timers.Set(kRetentionTimer, next == absl::InfiniteFuture() ? next : next + keep);
}

// A drained coordinator also waits until its workers have freed their memory, at most until the
// drain deadline.
void StopIfDrained(CoordinatorTables& tables) {
  if (!tables.draining || tables.stopped || tables.jobs.active() != 0) return;
  if (!tables.runs.all().empty() && tables.now < tables.drain_deadline) return;
  tables.stopped = true;
  tables.Emit(action::Stopped{});
}

// PlaceJobs has found jobs whose plan no longer fits. Each job is planned once for a membership.
bool MayReplan(const CoordinatorTables& tables) {
  return !tables.replan.empty() && tables.workers.ready_count() > 0;
}

// Performs the work that the marks ask for. Each round can only follow from a change of the
// previous one.
void Settle(CoordinatorTables& tables) {
  do {
    ExecuteDoomed(tables);
    ReconcileGroups(tables);
    SettleKept(tables);
    PlanWaitingJobs(tables);
    PlaceJobs(tables);
    AdvanceRuns(tables);
    ReleaseLeaving(tables);
  } while (tables.family_dirty || tables.place_again || tables.advance_again || tables.kept_again ||
           MayReplan(tables) || !tables.doomed_groups.empty() || !tables.doomed_workers.empty());
  AnnounceJobs(tables);
  ForgetJobs(tables);
  UpdateReadiness(tables);
  StopIfDrained(tables);
}

}  // namespace

CoordinatorState::CoordinatorState(CoordinatorOptions options, std::function<uint64_t()> random,
                                   PlanFunction plan, absl::Time now)
    : core_(std::make_unique<CoordinatorTables>(std::move(options), std::move(random),
                                                std::move(plan), now)) {}

CoordinatorState::~CoordinatorState() = default;

void CoordinatorState::SetTimeOfDay(absl::Duration ahead) { core_->time_of_day_ahead = ahead; }

std::vector<Action> CoordinatorState::Handle(Event event, absl::Time now) {
  CoordinatorTables& tables = *core_;
  tables.now = std::max(tables.now, now);
  tables.planned_here = false;
  while (std::optional<TimerKey> due = tables.timers.PopDue(tables.now)) {
    OnTimer(tables, *due);
    ExecuteDoomed(tables);
  }
  std::visit(Dispatcher{tables}, event);
  Settle(tables);
  return std::exchange(tables.actions, {});
}

absl::Time CoordinatorState::NextWakeup() const { return core_->timers.Next(); }

}  // namespace annulus
