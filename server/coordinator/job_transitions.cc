#include "server/coordinator/job_transitions.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"
#include "proto/wire/job_stats.h"
#include "server/coordinator/job_view.h"
#include "server/coordinator/kept_state.h"
#include "server/coordinator/run_completion.h"
#include "server/coordinator/serving.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

TimerKey TimerOf(const JobRecord& job) { return {TimerKey::Kind::kJob, job.number}; }

void ForgetState(JobRecord& job) {
  for (auto it = job.history.begin(); it != job.history.end();) {
    it = it->second.has_state_changed() ? job.history.erase(it) : std::next(it);
  }
}

void ForgetPlacement(JobRecord& job) {
  for (auto it = job.history.begin(); it != job.history.end();) {
    it = it->second.has_state_changed() ? std::next(it) : job.history.erase(it);
  }
}

bool WorthKeeping(const v1::JobEvent& event) {
  return event.has_state_changed() || event.has_placed() || event.has_rows_ready();
}

// A quiet call also receives that an attempt was lost: its streams end then, but the job does not.
bool Hears(const JobRecord& job, int64_t call, const v1::JobEvent& event) {
  const bool lost = job.state == v1::Job::STATE_QUEUED && job.attempt > 0;
  return event.has_placed() || job.quiet.count(call) == 0 ||
         (event.has_state_changed() && (lost || job.terminal()));
}

void FinishCalls(CoordinatorTables& tables, JobRecord& job) {
  for (int64_t call : job.owners) tables.Emit(action::FinishCall{call, job.error});
  for (int64_t call : job.watchers) tables.Emit(action::FinishCall{call, absl::OkStatus()});
  while (!job.owners.empty()) tables.jobs.RemoveCall(*job.owners.begin());
  while (!job.watchers.empty()) tables.jobs.RemoveCall(*job.watchers.begin());
}

void FillStats(const CoordinatorTables& tables, JobRecord& job) {
  v1::JobStats& stats = job.stats;
  stats.Clear();
  stats.set_job_id(job.id);
  stats.set_attempts(job.attempt);
  *stats.mutable_queued() = DurationToProto(job.placed - job.created);
  *stats.mutable_uploading() = DurationToProto(job.uploaded - job.placed);
  *stats.mutable_execution() = ExecutionToProto(job.plan->execution);
  stats.set_balance(job.plan->cost.balance);
  stats.set_lse_base(AnsweredLseBase(job.submission->spec));
  for (const RunRank& rank : tables.runs.Find(job.run)->ranks) AddReport(rank.report, &stats);
}

// The reason why no present worker could ever serve the job.
absl::Status UnplaceableError(const CoordinatorTables& tables, const JobRecord& job) {
  const absl::Duration retry = tables.options.retry_after;
  RETURN_IF_ERROR(CheckAlike(tables, *job.submission));
  // The workers of the state are present, otherwise the loss of the state would have ended the job.
  const int32_t size = job.plan != nullptr ? job.plan->world_size() : 1;
  const absl::Status unformed = FormationError(tables, size, *job.submission);
  if (job.lender != 0) {
    const std::string& state = job.submission->spec.gradients.state;
    return unformed.ok() ? StateLostError(state) : StateNotFormedError(state, unformed);
  }
  if (job.attempt > 0) return GroupLostError(job.lost_cause, job.attempt, retry);
  const int32_t ready = tables.workers.ready_count();
  if (ready == 0) return NoWorkersError(retry);
  RETURN_IF_ERROR(CheckAnyServes(tables, *job.submission));
  const int32_t servers = ServerCount(tables, *job.submission);
  if (!unformed.ok()) return NotFormedError(size, servers, unformed);
  const bool any_size = job.submission->execution.world_size == 0;
  if (!job.refusal.ok() && (any_size || DetailOf(job.refusal).reason == "INSUFFICIENT_CAPACITY")) {
    return job.refusal;
  }
  return servers < ready ? TooFewServersError(size, servers)
                         : InsufficientWorkersError(size, ready);
}

std::string StateName(v1::Job::State state) {
  return std::string(absl::StripPrefix(v1::Job::State_Name(state), "STATE_"));
}

void EndLateCalls(CoordinatorTables& tables, JobRecord& job) {
  std::vector<int64_t> late;
  for (const auto& [call, deadline] : job.call_deadlines) {
    if (tables.now >= deadline) late.push_back(call);
  }
  for (int64_t call : late) {
    tables.Emit(action::FinishCall{call, DeadlineError(job)});
    Leave(tables, job, call);
  }
}

}  // namespace

void Notify(CoordinatorTables& tables, JobRecord& job, v1::JobEvent event) {
  event.set_sequence(++job.last_event);
  event.set_job_id(job.id);
  if (event.has_state_changed()) ForgetState(job);
  if (event.has_placed()) ForgetPlacement(job);
  for (const std::set<int64_t>* calls : {&job.owners, &job.watchers}) {
    for (int64_t call : *calls) {
      if (Hears(job, call, event)) tables.Emit(action::SendEvent{call, event});
    }
  }
  if (WorthKeeping(event)) job.history.emplace(job.last_event, std::move(event));
}

void SetState(CoordinatorTables& tables, JobRecord& job, v1::Job::State state) {
  job.state = state;
  if (state == v1::Job::STATE_DRAINING) FillStats(tables, job);
  v1::JobEvent event;
  *event.mutable_state_changed() = JobView(job, JobDetail::kEvent);
  Notify(tables, job, std::move(event));
}

void Attach(CoordinatorTables& tables, JobRecord& job, int64_t call, CallKind kind) {
  tables.jobs.AddCall(job, call, kind);
  for (const auto& [number, event] : job.history) {
    if (event.has_state_changed() && Hears(job, call, event))
      tables.Emit(action::SendEvent{call, event});
  }
  for (const auto& [number, event] : job.history) {
    if (!event.has_state_changed() && !job.terminal() && Hears(job, call, event)) {
      tables.Emit(action::SendEvent{call, event});
    }
  }
  if (job.terminal()) FinishCalls(tables, job);
}

void Leave(CoordinatorTables& tables, JobRecord& job, int64_t call) {
  const bool owner = job.owners.count(call) != 0;
  tables.jobs.RemoveCall(call);
  if (!owner || !job.owners.empty() || job.detached()) return;
  // The call's deadline is the job's. Whichever end is noticed first, the error is the same.
  if (tables.now >= job.deadline) {
    EndJob(tables, job, v1::Job::STATE_FAILED, DeadlineError(job));
  } else {
    EndJob(tables, job, v1::Job::STATE_CANCELLED, CancelledByClientError());
  }
}

void EndJob(CoordinatorTables& tables, JobRecord& job, v1::Job::State state, absl::Status error) {
  if (job.terminal()) return;
  tables.ForgetPlan(std::exchange(job.planning, 0));
  tables.replan.erase(job.number);
  tables.queue.Remove(job.number);
  job.error = std::move(error);
  job.ended = tables.now;
  job.end_time = tables.TimeOfDay(tables.now);
  const bool stays = SettleState(tables, job, state);
  SetState(tables, job, state);
  FinishCalls(tables, job);
  tables.Log(LogLevel::kInfo, job.id,
             job.error.ok() ? absl::StrCat("ended: ", StateName(state))
                            : absl::StrCat("ended: ", StateName(state), " ", ErrorText(job.error)));
  const int64_t run = std::exchange(job.run, 0);
  tables.timers.Cancel(TimerOf(job));
  ForgetPlacement(job);
  tables.place_again = true;
  if (stays) return tables.jobs.Hold(job);
  tables.jobs.Retire(job, job.ended);
  HaltRun(tables, run, Group::kAlive);
}

void RunAgain(CoordinatorTables& tables, JobRecord& job, const absl::Status& cause) {
  job.run = 0;
  if (const JobRecord* lender = tables.jobs.Find(job.lender);
      lender != nullptr && lender->kept.status == KeptStatus::kLost) {
    EndJob(tables, job, v1::Job::STATE_FAILED, LossError(tables, *lender));
    return;
  }
  // Inputs come only from a call that follows the job and receives its placement.
  const bool forsaken = job.owners.empty() && job.watchers.empty();
  if (forsaken || job.submission->request.single_attempt() ||
      job.attempt >= tables.options.max_attempts) {
    EndJob(tables, job, v1::Job::STATE_FAILED,
           GroupLostError(cause, job.attempt, tables.options.retry_after));
    return;
  }
  tables.Log(LogLevel::kWarning, job.id, absl::StrCat("will run again: ", cause.message()));
  job.lost_cause = cause;
  ForgetPlacement(job);
  job.has_placement = false;
  job.placement.Clear();
  tables.replan.insert(job.number);
  job.result_deadline = absl::InfiniteFuture();
  SetState(tables, job, v1::Job::STATE_QUEUED);
  Enqueue(tables, job);
}

FairQueue::Entry QueueEntryOf(const Submission& submission, const JobPlan& plan, const Waits& job) {
  FairQueue::Entry entry;
  entry.job = job.number;
  entry.principal = job.principal;
  entry.priority = submission.execution.priority;
  entry.ranks = plan.world_size();
  entry.rank_seconds = plan.cost.seconds * entry.ranks;
  entry.submitted = job.since;
  entry.stands_aside = submission.spec.keeps_state();
  entry.factor = plan.factor;
  entry.gradients = submission.spec.operation == Operation::kGradients;
  return entry;
}

void Enqueue(CoordinatorTables& tables, JobRecord& job) {
  tables.queue.Remove(job.number);
  tables.queue.Push(
      QueueEntryOf(*job.submission, *job.plan, {job.number, job.principal, job.created}));
  tables.place_again = true;
  ArmJobTimer(tables, job);
}

absl::Duration ResultTtl(const CoordinatorTables& tables, const JobRecord& job) {
  const v1::RunJobRequest& request = job.submission->request;
  return request.has_result_ttl() ? DurationFromProto(request.result_ttl())
                                  : tables.options.default_result_ttl;
}

void ArmJobTimer(CoordinatorTables& tables, const JobRecord& job) {
  absl::Time next = std::min(job.deadline, job.result_deadline);
  for (const auto& [call, deadline] : job.call_deadlines) next = std::min(next, deadline);
  // A job that is being planned again may get a place.
  if (job.planning == 0) next = std::min(next, job.unplaceable_since + tables.options.regroup_wait);
  const RunRecord* run = tables.runs.Find(job.run);
  if (run != nullptr && run->state == RunRecord::State::kUploading) {
    next = std::min(next, run->upload_deadline);
  }
  tables.timers.Set(TimerOf(job), next);
}

absl::Status DeadlineError(const JobRecord& job) {
  return job.state == v1::Job::STATE_QUEUED ? ExpiredInQueueError()
                                            : ExpiredRunningError(StateName(job.state));
}

void OnJobTimer(CoordinatorTables& tables, int64_t number) {
  JobRecord* job = tables.jobs.Find(number);
  if (job == nullptr) return;
  EndLateCalls(tables, *job);
  if (job->terminal()) return;
  const RunRecord* run = tables.runs.Find(job->run);
  absl::Status error;
  if (tables.now >= job->deadline) {
    error = DeadlineError(*job);
  } else if (tables.now >= job->result_deadline) {
    error = ResultExpiredError();
  } else if (run != nullptr && run->state == RunRecord::State::kUploading &&
             tables.now >= run->upload_deadline) {
    error = UploadStalledError();
  } else if (job->planning == 0 &&
             tables.now >= job->unplaceable_since + tables.options.regroup_wait) {
    error = UnplaceableError(tables, *job);
  }
  if (error.ok()) {
    ArmJobTimer(tables, *job);
  } else {
    EndJob(tables, *job, v1::Job::STATE_FAILED, std::move(error));
  }
}

}  // namespace annulus
