#include "server/coordinator/admission.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "attention/planning/kernel_rates.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"
#include "server/coordinator/job_transitions.h"
#include "server/coordinator/job_view.h"
#include "server/coordinator/kept_state.h"
#include "server/coordinator/planning/plan_time.h"
#include "server/coordinator/serving.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

absl::Status CheckOpen(const CoordinatorTables& tables) {
  const absl::Duration retry = tables.options.retry_after;
  if (tables.draining) return DrainingError(retry);
  if (!tables.enough_workers()) return NoWorkersError(retry);
  if (tables.restarted && tables.now < tables.started + tables.options.lease)
    return StartingError(retry);
  return absl::OkStatus();
}

absl::Status CheckServable(const CoordinatorTables& tables, const Submission& submission) {
  RETURN_IF_ERROR(CheckOpen(tables));
  const int32_t wanted = submission.execution.world_size;
  const int32_t ready = tables.workers.ready_count();
  if (wanted > ready) return InsufficientWorkersError(wanted, ready);
  return CheckServers(tables, wanted, submission);
}

// Sizes of groups on offer: 1, sizes whose latest formation has not failed, and the size that the
// caller asks for. Only sizes for which some workers serve the job.
std::vector<int32_t> SizesOnOffer(const CoordinatorTables& tables, const Submission& submission) {
  const int32_t wanted = submission.execution.world_size;
  std::set<int32_t> sizes;
  const auto family = tables.Family();
  if (HasServers(tables, family, 1, submission)) sizes.insert(1);
  const int32_t limit =
      std::min(tables.workers.ready_count(), tables.options.limits.max_world_size);
  for (const std::vector<int64_t>& members : family) {
    auto pause = tables.groups.pauses().find(members);
    if (pause != tables.groups.pauses().end() && pause->second.failures > 0) continue;
    if (!FirstServe(tables, members, members.size(), submission)) continue;
    sizes.insert(static_cast<int32_t>(members.size()));
  }
  if (wanted > 0 && HasServers(tables, family, wanted, submission)) sizes.insert(wanted);
  std::vector<int32_t> offer(sizes.begin(), sizes.upper_bound(limit));
  return offer;
}

// True if the worker may compute a rank of the job. Any ready worker that serves the job may. A job
// that uses a state runs on the workers of the state, ready or not.
bool MayCompute(const WorkerRecord& worker, const Submission& submission, const RunRecord* kept) {
  if (kept != nullptr) return kept->RankOf(worker.number) >= 0;
  return worker.ready() && Serves(worker.info, submission);
}

// Budgets and rates are those of the smallest and slowest of these workers.
PlanRequest MakeRequest(const CoordinatorTables& tables,
                        std::shared_ptr<const Submission> submission, const UsedState& state) {
  PlanRequest request;
  request.sizes = state.lender != nullptr ? std::vector<int32_t>{state.execution.world_size}
                                          : SizesOnOffer(tables, *submission);
  request.submission = std::move(submission);
  request.execution = state.execution;
  request.segment_target = tables.options.segment_target;
  request.ways = tables.ways;
  const RunRecord* kept =
      state.lender == nullptr ? nullptr : tables.runs.Find(state.lender->kept.run);
  bool first = true;
  double step_seconds = 0, measured_pair_seconds = 0;
  for (const auto& [number, worker] : tables.workers.all()) {
    const control::v1::Register& info = worker.info;
    if (!MayCompute(worker, *request.submission, kept)) continue;
    const auto least = [first](auto a, auto b) { return first ? b : std::min(a, b); };
    request.max_device_bytes = least(request.max_device_bytes, info.device_limit_bytes());
    request.max_staging_bytes = least(request.max_staging_bytes, info.staging_limit_bytes());
    request.max_kept_bytes = KeptLimit(tables, request.max_staging_bytes);
    const auto most = [first](auto a, auto b) { return first ? b : std::max(a, b); };
    const AttentionSpec& spec = request.submission->spec;
    const KernelRate kernel = worker.paces.RateFor(worker.rates, spec);
    request.rates.pair_seconds = most(request.rates.pair_seconds, kernel.pair_seconds);
    request.rates.row_seconds = most(request.rates.row_seconds, kernel.row_seconds);
    request.rates.key_seconds = most(request.rates.key_seconds, kernel.key_seconds);
    measured_pair_seconds =
        most(measured_pair_seconds, MeasuredRate(worker.rates, spec).pair_seconds);
    request.rates.link_bytes_per_second =
        least(request.rates.link_bytes_per_second, worker.rates.link_bytes_per_second);
    step_seconds = most(step_seconds, worker.rates.step_seconds);
    first = false;
  }
  if (step_seconds > 0) request.rates.step_seconds = step_seconds;
  if (measured_pair_seconds > 0)
    request.factor = request.rates.pair_seconds / measured_pair_seconds;
  // The state stays in staging beside the job's own tensors.
  if (state.lender != nullptr) request.max_staging_bytes -= LargestShard(state.lender->plan->bytes);
  return request;
}

bool PlanInline(const CoordinatorTables& tables, const PlanRequest& request) {
  const CoordinatorOptions& options = tables.options;
  const AttentionSpec& spec = request.submission->spec;
  if (spec.q_rows() + spec.kv_rows() > options.inline_plan_rows) return false;
  return static_cast<int64_t>(spec.sequences.size()) <= options.inline_plan_sequences &&
         PlanTime(request) <= options.inline_plan_time;
}

PlanResult PlanHere(CoordinatorTables& tables, const PlanRequest& request) {
  tables.planned_here = true;
  return tables.plan(request);
}

void MakePlan(CoordinatorTables& tables, PlanRequest request, CoordinatorTables::Planning target) {
  const int64_t number = ++tables.last_plan;
  tables.plannings[number] = target;
  const bool quick = PlanTime(request) <= tables.options.quick_plan_time;
  tables.Emit(action::MakePlan{number, std::move(request), /*dry_run=*/target.call != 0, quick});
}

// The least time of a pair of the job: the best that any ready worker has shown.
double LeastPairSeconds(const CoordinatorTables& tables, const Submission& submission) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [number, worker] : tables.workers.all()) {
    if (!worker.ready() || !Serves(worker.info, submission)) continue;
    const KernelRate rate = worker.paces.LeastRateFor(worker.rates, submission.spec);
    least = std::min(least, rate.pair_seconds);
  }
  return least;
}

// Rank-seconds of the jobs ahead, scaled to the fastest speed that any worker has shown. Each job
// is scaled relative to the factor of its plan.
double WorkAhead(const CoordinatorTables& tables, const FairQueue::Entry& newcomer) {
  double forward = 1, gradients = 1;
  for (const auto& [number, worker] : tables.workers.all()) {
    if (!worker.ready()) continue;
    forward = std::min(forward, worker.paces.LeastOf(worker.rates, Operation::kForward));
    gradients = std::min(gradients, worker.paces.LeastOf(worker.rates, Operation::kGradients));
  }
  return tables.queue.WorkAhead(newcomer, [&](const FairQueue::Entry& entry) {
    return std::min(1.0, (entry.gradients ? gradients : forward) / entry.factor);
  });
}

// An optimistic estimate: all ready workers share the jobs ahead, running jobs are not counted, and
// all workers are as fast as the best has shown.
absl::Status CheckDeadline(const CoordinatorTables& tables, const Submission& submission,
                           const JobPlan& plan, const Waits& job, absl::Time deadline) {
  const int32_t ready = std::max(1, tables.workers.ready_count());
  const double least = LeastPairSeconds(tables, submission);
  // The speeds of now: others may have been reported while the plan was made.
  const double share = least < plan.pair_seconds ? least / plan.pair_seconds : 1;
  const double ahead = WorkAhead(tables, QueueEntryOf(submission, plan, job));
  const absl::Duration predicted = absl::Seconds(plan.cost.seconds * share + ahead / ready);
  const absl::Duration remaining = deadline - tables.now;
  return predicted > remaining ? DeadlineUnreachableError(predicted, remaining) : absl::OkStatus();
}

absl::Time JobDeadlineOf(const CoordinatorTables& tables, const event::RunJob& event) {
  const v1::RunJobRequest& request = event.submission->request;
  absl::Time deadline = tables.now + tables.options.max_timeout;
  if (request.has_timeout()) deadline = tables.now + DurationFromProto(request.timeout());
  // A detached job outlives its call. Without a timeout, the call's deadline limits it.
  const bool bound_to_call = !request.detached() || !request.has_timeout();
  return bound_to_call ? std::min(deadline, event.deadline) : deadline;
}

CallKind KindOf(const event::RunJob& event) {
  return event.submission->request.quiet() ? CallKind::kQuietOwner : CallKind::kOwner;
}

JobRecord& AddJob(CoordinatorTables& tables, const event::RunJob& event, JobRecord* lender) {
  std::string id;
  do {
    id = absl::StrFormat("job-%016x", tables.random());
  } while (tables.jobs.Known(id));
  JobRecord& job = tables.jobs.Add(id, event.principal, event.submission);
  job.created = tables.now;
  job.create_time = tables.TimeOfDay(tables.now);
  job.deadline = JobDeadlineOf(tables, event);
  job.planned_epoch = tables.membership_epoch;
  TakeState(tables, job, lender);
  tables.jobs.AddCall(job, event.call, KindOf(event));
  tables.jobs.CountRequest(event.call, event.caller_bytes);
  tables.unannounced.push_back(job.number);
  return job;
}

absl::Status CheckRequestBytes(const CoordinatorTables& tables, const event::RunJob& event) {
  const int64_t limit = tables.options.max_request_bytes;
  return tables.jobs.request_bytes() + event.submission->bytes + event.caller_bytes > limit
             ? RequestBytesFullError(limit, tables.options.retry_after)
             : absl::OkStatus();
}

// True if the call belongs to an existing job, or was refused as a joining call.
bool JoinOrRefuse(CoordinatorTables& tables, const event::RunJob& event) {
  JobRecord* same =
      tables.jobs.FindRequest(event.principal, event.submission->request.request_id());
  // An ended job has no outputs to give, so its id is free.
  if (same == nullptr || same->terminal()) return false;
  if (same->owners.size() + same->watchers.size() >= tables.options.max_calls_per_job) {
    tables.Emit(action::FinishCall{event.call, TooManyCallsError(tables.options.max_calls_per_job,
                                                                 tables.options.retry_after)});
  } else if (!SameJob(*same->submission, *event.submission)) {
    tables.Emit(action::FinishCall{event.call, RequestIdReusedError(same->request_id())});
  } else if (absl::Status s = CheckRequestBytes(tables, event); !s.ok()) {
    tables.Emit(action::FinishCall{event.call, s});
  } else {
    Attach(tables, *same, event.call, KindOf(event));
    tables.jobs.CountRequest(event.call, event.submission->bytes + event.caller_bytes);
    same->call_deadlines[event.call] = event.deadline;
    ArmJobTimer(tables, *same);
  }
  return true;
}

absl::Status Admit(CoordinatorTables& tables, const event::RunJob& event) {
  const Submission& submission = *event.submission;
  RETURN_IF_ERROR(CheckServable(tables, submission));
  if (tables.queued_jobs() >= tables.options.max_queued_jobs) {
    return QueueFullError(tables.options.max_queued_jobs, tables.options.retry_after);
  }
  RETURN_IF_ERROR(CheckRequestBytes(tables, event));
  RETURN_IF_ERROR(CheckMayKeep(tables, event.principal, submission));
  ASSIGN_OR_RETURN(const UsedState used, FindState(tables, event.principal, submission));
  PlanRequest request = MakeRequest(tables, event.submission, used);
  if (!PlanInline(tables, request)) {
    JobRecord& job = AddJob(tables, event, used.lender);
    MakePlan(tables, std::move(request), {job.number, 0});
    job.planning = tables.last_plan;
    ArmJobTimer(tables, job);
    return absl::OkStatus();
  }
  PlanResult plan = PlanHere(tables, request);
  if (!plan.ok()) return plan.status();
  if (used.lender != nullptr) RETURN_IF_ERROR(CheckPlanOnState(tables, **plan, *used.lender));
  RETURN_IF_ERROR(CheckDeadline(tables, submission, **plan, {0, event.principal, tables.now},
                                JobDeadlineOf(tables, event)));
  JobRecord& job = AddJob(tables, event, used.lender);
  job.plan = *std::move(plan);
  Enqueue(tables, job);
  return absl::OkStatus();
}

bool Temporary(const absl::Status& status) {
  const std::string reason = DetailOf(status).reason;
  return reason == "INSUFFICIENT_WORKERS" || reason == "INSUFFICIENT_CAPACITY";
}

void AcceptPlan(CoordinatorTables& tables, JobRecord& job, PlanResult result) {
  job.planning = 0;
  tables.place_again = true;
  const bool waiting = tables.queue.Contains(job.number);
  absl::Status refusal = result.status();
  if (const JobRecord* lender = tables.jobs.Find(job.lender); refusal.ok() && lender != nullptr) {
    refusal = CheckPlanOnState(tables, **result, *lender);
  }
  job.refusal = refusal;
  if (result.ok()) job.plan = *std::move(result);
  if (refusal.ok() && !waiting) {
    refusal = CheckDeadline(tables, *job.submission, *job.plan, {0, job.principal, job.created},
                            job.deadline);
  }
  // Other workers may still come while the job waits. A job with a state can run only on that
  // state's workers.
  if (waiting && job.lender == 0 && Temporary(refusal)) return ArmJobTimer(tables, job);
  if (!refusal.ok()) {
    EndJob(tables, job, v1::Job::STATE_FAILED, refusal);
  } else {
    Enqueue(tables, job);
  }
}

// Dry runs have limits of their own, as large as those of jobs.
absl::Status CheckDryRuns(const CoordinatorTables& tables, const Submission& submission) {
  size_t count = 0;
  int64_t bytes = submission.bytes;
  for (const auto& [number, planning] : tables.plannings) {
    if (planning.call == 0) continue;
    ++count;
    bytes += planning.bytes;
  }
  const CoordinatorOptions& options = tables.options;
  if (count >= options.max_queued_jobs)
    return QueueFullError(options.max_queued_jobs, options.retry_after);
  if (bytes > options.max_request_bytes)
    return RequestBytesFullError(options.max_request_bytes, options.retry_after);
  return absl::OkStatus();
}

void AnswerPlan(CoordinatorTables& tables, int64_t call, const PlanResult& result) {
  if (result.ok()) {
    tables.Emit(action::Answer{call, PlanView(**result)});
  } else {
    tables.Emit(action::Answer{call, result.status()});
  }
}

}  // namespace

void OnRunJob(CoordinatorTables& tables, const event::RunJob& event) {
  if (JoinOrRefuse(tables, event)) return;
  const absl::Status refusal = Admit(tables, event);
  if (!refusal.ok()) tables.Emit(action::FinishCall{event.call, refusal});
}

void OnPlanJob(CoordinatorTables& tables, const event::PlanJob& event) {
  const Submission& submission = *event.submission;
  absl::Status refusal = CheckServable(tables, submission);
  if (refusal.ok()) refusal = CheckDryRuns(tables, submission);
  if (!refusal.ok()) {
    tables.Emit(action::Answer{event.call, refusal});
    return;
  }
  const absl::StatusOr<UsedState> used = FindState(tables, event.principal, submission);
  if (!used.ok()) {
    tables.Emit(action::Answer{event.call, used.status()});
    return;
  }
  PlanRequest request = MakeRequest(tables, event.submission, *used);
  request.count_all = true;
  // Always made elsewhere, however small: dry runs take no time of events.
  MakePlan(tables, std::move(request), {0, event.call, event.submission->bytes});
}

void OnPlanned(CoordinatorTables& tables, const event::Planned& event) {
  auto it = tables.plannings.find(event.plan);
  if (it == tables.plannings.end()) return;
  const CoordinatorTables::Planning target = it->second;
  tables.plannings.erase(it);
  if (target.call != 0) return AnswerPlan(tables, target.call, event.result);
  JobRecord* job = tables.jobs.Find(target.job);
  if (job != nullptr && job->planning == event.plan) AcceptPlan(tables, *job, event.result);
}

void PlanWaitingJobs(CoordinatorTables& tables) {
  if (tables.replan.empty() || tables.workers.ready_count() == 0) return;
  for (int64_t number : std::exchange(tables.replan, {})) {
    JobRecord& job = *tables.jobs.Find(number);
    job.planned_epoch = tables.membership_epoch;
    const absl::StatusOr<UsedState> used = StateOf(tables, job);
    if (!used.ok()) {
      EndJob(tables, job, v1::Job::STATE_FAILED, used.status());
      continue;
    }
    PlanRequest request = MakeRequest(tables, job.submission, *used);
    // At most one plan inside an event: while plans are made, beats wait for their answers, and all
    // workers would be lost.
    if (!tables.planned_here && PlanInline(tables, request)) {
      AcceptPlan(tables, job, PlanHere(tables, request));
    } else {
      tables.ForgetPlan(job.planning);
      MakePlan(tables, std::move(request), {job.number, 0});
      job.planning = tables.last_plan;
    }
  }
}

void AnnounceJobs(CoordinatorTables& tables) {
  for (int64_t number : std::exchange(tables.unannounced, {})) {
    JobRecord* job = tables.jobs.Find(number);
    if (job != nullptr && job->last_event == 0) SetState(tables, *job, v1::Job::STATE_QUEUED);
  }
}

}  // namespace annulus
