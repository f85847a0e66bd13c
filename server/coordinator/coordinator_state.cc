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

void EndAllJobs(Core& core) {
  for (auto& [number, job] : core.jobs.all()) {
    EndJob(core, job, v1::Job::STATE_FAILED, DrainingError(core.options.retry_after));
  }
}

void OnTimer(Core& core, TimerKey key) {
  switch (key.kind) {
    case TimerKey::Kind::kWorker:
      return OnWorkerTimer(core, key.number);
    case TimerKey::Kind::kGroup:
      return OnGroupTimer(core, key.number);
    case TimerKey::Kind::kFormation:
      core.family_dirty = true;
      return;
    case TimerKey::Kind::kJob:
      return OnJobTimer(core, key.number);
    case TimerKey::Kind::kRun:
      return OnRunTimer(core, key.number);
    case TimerKey::Kind::kDrain:
      return EndAllJobs(core);
    case TimerKey::Kind::kKept:
      return OnKeptTimer(core, key.number);
    case TimerKey::Kind::kRetention:
    case TimerKey::Kind::kReadiness:
      return;
  }
}

void StartDrain(Core& core) {
  if (std::exchange(core.draining, true)) return;
  core.kept_again = true;
  core.drain_deadline = core.now + core.options.drain_grace;
  core.timers.Set(kDrainTimer, core.drain_deadline);
}

struct Dispatcher {
  Core& core;
  void operator()(const event::WorkerSaid& e) { OnWorkerSaid(core, e); }
  void operator()(const event::WorkerGone& e) { OnWorkerGone(core, e.connection); }
  void operator()(const event::RunJob& e) { OnRunJob(core, e); }
  void operator()(const event::PlanJob& e) { OnPlanJob(core, e); }
  void operator()(const event::WatchJob& e) { OnWatchJob(core, e); }
  void operator()(const event::GetJob& e) { OnGetJob(core, e); }
  void operator()(const event::CancelJob& e) { OnCancelJob(core, e); }
  void operator()(const event::ReleaseState& e) { OnReleaseState(core, e); }
  void operator()(const event::ListJobs& e) { OnListJobs(core, e); }
  void operator()(const event::GetServerInfo& e) { OnGetServerInfo(core, e); }
  void operator()(const event::CallGone& e) { OnCallGone(core, e.call); }
  void operator()(const event::Planned& e) { OnPlanned(core, e); }
  void operator()(const event::Tick&) {}
  void operator()(const event::Drain&) { StartDrain(core); }
};

void ExecuteDoomed(Core& core) {
  while (!core.doomed_groups.empty() || !core.doomed_workers.empty()) {
    for (const auto& [group, cause] : std::exchange(core.doomed_groups, {})) {
      AbortGroup(core, group, cause);
    }
    for (const auto& [worker, cause] : std::exchange(core.doomed_workers, {})) {
      const WorkerRecord* record = core.workers.Find(worker);
      if (record != nullptr) LoseWorker(core, worker, cause, LeaseExpiredError(record->slot()));
    }
  }
}

void UpdateReadiness(Core& core) {
  const bool settled = !core.restarted || core.now >= core.started + core.options.lease;
  const bool ready = !core.draining && settled && core.enough_workers();
  if (ready == core.ready) return;
  core.ready = ready;
  core.Emit(action::SetReady{ready});
}

void ForgetJobs(Core& core) {
  const absl::Duration keep = core.options.job_retention;
  const absl::Time next = core.jobs.Forget(core.now - keep, core.options.max_retained_jobs);
  core.timers.Set(kRetentionTimer, next == absl::InfiniteFuture() ? next : next + keep);
}

// A drained coordinator waits for its workers' memory too, but not longer than an answer may take.
void StopIfDrained(Core& core) {
  if (!core.draining || core.stopped || core.jobs.active() != 0) return;
  if (!core.runs.all().empty() && core.now < core.drain_deadline) return;
  core.stopped = true;
  core.Emit(action::Stopped{});
}

// Placing has found a job whose plan no longer fits; each is planned once for a membership.
bool MayReplan(const Core& core) { return !core.replan.empty() && core.workers.ready_count() > 0; }

// What the marks of an event ask for. Each round can only follow from a change of the one before.
void Settle(Core& core) {
  do {
    ExecuteDoomed(core);
    ReconcileGroups(core);
    SettleKept(core);
    PlanWaitingJobs(core);
    PlaceJobs(core);
    AdvanceRuns(core);
    ReleaseLeaving(core);
  } while (core.family_dirty || core.place_again || core.advance_again || core.kept_again ||
           MayReplan(core) || !core.doomed_groups.empty() || !core.doomed_workers.empty());
  AnnounceJobs(core);
  ForgetJobs(core);
  UpdateReadiness(core);
  StopIfDrained(core);
}

}  // namespace

CoordinatorState::CoordinatorState(CoordinatorOptions options, std::function<uint64_t()> random,
                                   PlanFunction plan, absl::Time now)
    : core_(std::make_unique<Core>(std::move(options), std::move(random), std::move(plan), now)) {}

CoordinatorState::~CoordinatorState() = default;

void CoordinatorState::SetTimeOfDay(absl::Duration ahead) { core_->time_of_day_ahead = ahead; }

std::vector<Action> CoordinatorState::Handle(Event event, absl::Time now) {
  Core& core = *core_;
  core.now = std::max(core.now, now);
  core.planned_here = false;
  while (std::optional<TimerKey> due = core.timers.PopDue(core.now)) {
    OnTimer(core, *due);
    ExecuteDoomed(core);
  }
  std::visit(Dispatcher{core}, event);
  Settle(core);
  return std::exchange(core.actions, {});
}

absl::Time CoordinatorState::NextWakeup() const { return core_->timers.Next(); }

}  // namespace annulus
