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

// A quiet call, too, is told that an attempt was lost: its streams end then, the job does not.
bool Hears(const JobRecord& job, int64_t call, const v1::JobEvent& event) {
  const bool lost = job.state == v1::Job::STATE_QUEUED && job.attempt > 0;
  return event.has_placed() || job.quiet.count(call) == 0 ||
         (event.has_state_changed() && (lost || job.terminal()));
}

void FinishCalls(Core& core, JobRecord& job) {
  for (int64_t call : job.owners) core.Emit(action::FinishCall{call, job.error});
  for (int64_t call : job.watchers) core.Emit(action::FinishCall{call, absl::OkStatus()});
  while (!job.owners.empty()) core.jobs.RemoveCall(*job.owners.begin());
  while (!job.watchers.empty()) core.jobs.RemoveCall(*job.watchers.begin());
}

void FillStats(const Core& core, JobRecord& job) {
  v1::JobStats& stats = job.stats;
  stats.Clear();
  stats.set_job_id(job.id);
  stats.set_attempts(job.attempt);
  *stats.mutable_queued() = DurationToProto(job.placed - job.created);
  *stats.mutable_uploading() = DurationToProto(job.uploaded - job.placed);
  *stats.mutable_execution() = ExecutionToProto(job.plan->execution);
  stats.set_balance(job.plan->cost.balance);
  stats.set_lse_base(AnsweredLseBase(job.submission->spec));
  for (const RunRank& rank : core.runs.Find(job.run)->ranks) AddReport(rank.report, &stats);
}

// No present worker could ever serve the job: why.
absl::Status UnplaceableError(const Core& core, const JobRecord& job) {
  const absl::Duration retry = core.options.retry_after;
  RETURN_IF_ERROR(CheckAlike(core, *job.submission));
  // The state's own workers are there, or its loss would have ended the job.
  const int32_t size = job.plan != nullptr ? job.plan->world_size() : 1;
  const absl::Status unformed = FormationError(core, size, *job.submission);
  if (job.lender != 0) {
    const std::string& state = job.submission->spec.gradients.state;
    return unformed.ok() ? StateLostError(state) : StateNotFormedError(state, unformed);
  }
  if (job.attempt > 0) return GroupLostError(job.lost_cause, job.attempt, retry);
  const int32_t ready = core.workers.ready_count();
  if (ready == 0) return NoWorkersError(retry);
  RETURN_IF_ERROR(CheckAnyServes(core, *job.submission));
  const int32_t servers = ServerCount(core, *job.submission);
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

void EndLateCalls(Core& core, JobRecord& job) {
  std::vector<int64_t> late;
  for (const auto& [call, deadline] : job.call_deadlines) {
    if (core.now >= deadline) late.push_back(call);
  }
  for (int64_t call : late) {
    core.Emit(action::FinishCall{call, DeadlineError(job)});
    Leave(core, job, call);
  }
}

}  // namespace

void Notify(Core& core, JobRecord& job, v1::JobEvent event) {
  event.set_sequence(++job.last_event);
  event.set_job_id(job.id);
  if (event.has_state_changed()) ForgetState(job);
  if (event.has_placed()) ForgetPlacement(job);
  for (const std::set<int64_t>* calls : {&job.owners, &job.watchers}) {
    for (int64_t call : *calls) {
      if (Hears(job, call, event)) core.Emit(action::SendEvent{call, event});
    }
  }
  if (WorthKeeping(event)) job.history.emplace(job.last_event, std::move(event));
}

void SetState(Core& core, JobRecord& job, v1::Job::State state) {
  job.state = state;
  if (state == v1::Job::STATE_DRAINING) FillStats(core, job);
  v1::JobEvent event;
  *event.mutable_state_changed() = JobView(job, JobDetail::kEvent);
  Notify(core, job, std::move(event));
}

void Attach(Core& core, JobRecord& job, int64_t call, CallKind kind) {
  core.jobs.AddCall(job, call, kind);
  for (const auto& [number, event] : job.history) {
    if (event.has_state_changed() && Hears(job, call, event))
      core.Emit(action::SendEvent{call, event});
  }
  for (const auto& [number, event] : job.history) {
    if (!event.has_state_changed() && !job.terminal() && Hears(job, call, event)) {
      core.Emit(action::SendEvent{call, event});
    }
  }
  if (job.terminal()) FinishCalls(core, job);
}

void Leave(Core& core, JobRecord& job, int64_t call) {
  const bool owner = job.owners.count(call) != 0;
  core.jobs.RemoveCall(call);
  if (!owner || !job.owners.empty() || job.detached()) return;
  // The call's deadline is the job's: whichever end is noticed first, the reason is the same.
  if (core.now >= job.deadline) {
    EndJob(core, job, v1::Job::STATE_FAILED, DeadlineError(job));
  } else {
    EndJob(core, job, v1::Job::STATE_CANCELLED, CancelledByClientError());
  }
}

void EndJob(Core& core, JobRecord& job, v1::Job::State state, absl::Status error) {
  if (job.terminal()) return;
  core.ForgetPlan(std::exchange(job.planning, 0));
  core.replan.erase(job.number);
  core.queue.Remove(job.number);
  job.error = std::move(error);
  job.ended = core.now;
  job.end_time = core.TimeOfDay(core.now);
  const bool stays = SettleState(core, job, state);
  SetState(core, job, state);
  FinishCalls(core, job);
  core.Log(LogLevel::kInfo, job.id,
           job.error.ok() ? absl::StrCat("ended: ", StateName(state))
                          : absl::StrCat("ended: ", StateName(state), " ", ErrorText(job.error)));
  const int64_t run = std::exchange(job.run, 0);
  core.timers.Cancel(TimerOf(job));
  ForgetPlacement(job);
  core.place_again = true;
  if (stays) return core.jobs.Hold(job);
  core.jobs.Retire(job, job.ended);
  HaltRun(core, run, Group::kAlive);
}

void RunAgain(Core& core, JobRecord& job, const absl::Status& cause) {
  job.run = 0;
  if (const JobRecord* lender = core.jobs.Find(job.lender);
      lender != nullptr && lender->kept.status == KeptStatus::kLost) {
    EndJob(core, job, v1::Job::STATE_FAILED, LossError(core, *lender));
    return;
  }
  // Inputs come only from who follows the job and hears where they are to go.
  const bool forsaken = job.owners.empty() && job.watchers.empty();
  if (forsaken || job.submission->request.single_attempt() ||
      job.attempt >= core.options.max_attempts) {
    EndJob(core, job, v1::Job::STATE_FAILED,
           GroupLostError(cause, job.attempt, core.options.retry_after));
    return;
  }
  core.Log(LogLevel::kWarning, job.id, absl::StrCat("will run again: ", cause.message()));
  job.lost_cause = cause;
  ForgetPlacement(job);
  job.has_placement = false;
  job.placement.Clear();
  core.replan.insert(job.number);
  job.result_deadline = absl::InfiniteFuture();
  SetState(core, job, v1::Job::STATE_QUEUED);
  Enqueue(core, job);
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

void Enqueue(Core& core, JobRecord& job) {
  core.queue.Remove(job.number);
  core.queue.Push(
      QueueEntryOf(*job.submission, *job.plan, {job.number, job.principal, job.created}));
  core.place_again = true;
  ArmJobTimer(core, job);
}

absl::Duration ResultTtl(const Core& core, const JobRecord& job) {
  const v1::RunJobRequest& request = job.submission->request;
  return request.has_result_ttl() ? DurationFromProto(request.result_ttl())
                                  : core.options.default_result_ttl;
}

void ArmJobTimer(Core& core, const JobRecord& job) {
  absl::Time next = std::min(job.deadline, job.result_deadline);
  for (const auto& [call, deadline] : job.call_deadlines) next = std::min(next, deadline);
  // While it is planned again it may have a place.
  if (job.planning == 0) next = std::min(next, job.unplaceable_since + core.options.regroup_wait);
  const RunRecord* run = core.runs.Find(job.run);
  if (run != nullptr && run->state == RunRecord::State::kUploading) {
    next = std::min(next, run->upload_deadline);
  }
  core.timers.Set(TimerOf(job), next);
}

absl::Status DeadlineError(const JobRecord& job) {
  return job.state == v1::Job::STATE_QUEUED ? ExpiredInQueueError()
                                            : ExpiredRunningError(StateName(job.state));
}

void OnJobTimer(Core& core, int64_t number) {
  JobRecord* job = core.jobs.Find(number);
  if (job == nullptr) return;
  EndLateCalls(core, *job);
  if (job->terminal()) return;
  const RunRecord* run = core.runs.Find(job->run);
  absl::Status error;
  if (core.now >= job->deadline) {
    error = DeadlineError(*job);
  } else if (core.now >= job->result_deadline) {
    error = ResultExpiredError();
  } else if (run != nullptr && run->state == RunRecord::State::kUploading &&
             core.now >= run->upload_deadline) {
    error = UploadStalledError();
  } else if (job->planning == 0 && core.now >= job->unplaceable_since + core.options.regroup_wait) {
    error = UnplaceableError(core, *job);
  }
  if (error.ok()) {
    ArmJobTimer(core, *job);
  } else {
    EndJob(core, *job, v1::Job::STATE_FAILED, std::move(error));
  }
}

}  // namespace annulus
