#include "server/coordinator/queries.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "attention/validate/capability.h"
#include "base/error.h"
#include "proto/wire/convert.h"
#include "server/coordinator/job_transitions.h"
#include "server/coordinator/job_view.h"
#include "server/coordinator/serving.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

constexpr int32_t kDefaultPage = 100;
constexpr int32_t kLargestPage = 1000;

void SetBudget(v1::Budget* budget, int64_t used, int64_t limit) {
  budget->set_used_bytes(used);
  budget->set_limit_bytes(limit);
}

void DescribePaces(const WorkerRecord& worker, v1::WorkerInfo* info) {
  for (const auto& [of, pace] : worker.paces.all()) {
    if (pace.runs() == 0) continue;
    const KernelRates& kernel = worker.rates.kernels[of.kernel];
    v1::ShownPace* view = info->add_shown();
    view->set_dtype(static_cast<v1::DataType>(of.dtype));
    view->set_arithmetic(static_cast<v1::AttentionSpec::Arithmetic>(kernel.arithmetic));
    view->set_gradients(of.gradients);
    view->set_factor(pace.factor());
    view->set_least(pace.least());
    view->set_runs(pace.runs());
  }
}

void DescribeWorkers(const CoordinatorTables& tables, v1::ServerInfo* info) {
  // Each slot has one worker. The order of worker numbers is the order of arrival, so slots are
  // sorted here.
  std::map<std::string, int64_t> by_slot;
  for (const auto& [number, worker] : tables.workers.all()) by_slot[worker.slot()] = number;
  for (const auto& [slot, number] : by_slot) {
    const WorkerRecord& worker = *tables.workers.Find(number);
    v1::WorkerInfo* view = info->add_workers();
    view->set_slot(slot);
    view->set_state(worker.leaving   ? v1::WorkerInfo::STATE_DRAINING
                    : worker.ready() ? v1::WorkerInfo::STATE_READY
                                     : v1::WorkerInfo::STATE_SUSPECT);
    view->set_backend(worker.info.backend());
    view->set_data_endpoint(worker.info.data_endpoint());
    const PoolBytes used = tables.ledger.used(number), limits = tables.ledger.limits(number);
    SetBudget(view->mutable_staging(), used.staging, limits.staging);
    SetBudget(view->mutable_device(), used.device, limits.device);
    SetBudget(view->mutable_sessions(), 0, worker.info.session_limit_bytes());
    SetBudget(view->mutable_kept(), used.kept, limits.kept);
    *view->mutable_rates() = worker.info.rates();
    DescribePaces(worker, view);
  }
}

void DescribeGroups(const CoordinatorTables& tables, v1::ServerInfo* info) {
  for (const auto& [number, group] : tables.groups.all()) {
    if (!group.live()) continue;
    v1::GroupInfo* view = info->add_groups();
    view->set_generation(number);
    for (const std::string& slot : group.slots) view->add_slots(slot);
    view->set_ready(group.state == GroupRecord::State::kReady);
  }
}

void DescribeLimits(const CoordinatorOptions& options, v1::ServerLimits* limits) {
  limits->set_max_rows(options.limits.max_rows);
  limits->set_max_heads(options.limits.max_heads);
  limits->set_max_head_dim(options.limits.max_head_dim);
  limits->set_max_sequences(options.limits.max_sequences);
  limits->set_max_chunk_bytes(options.max_chunk_bytes);
  limits->set_max_queued_jobs(static_cast<int32_t>(options.max_queued_jobs));
  *limits->mutable_max_timeout() = DurationToProto(options.max_timeout);
  limits->set_max_inline_elements(options.max_inline_elements);
  *limits->mutable_max_keep_state() = DurationToProto(options.limits.max_keep_state);
}

// The reason why every deterministic job is refused at present; empty if there is none.
std::string WhyNotDeterministic(const CoordinatorTables& tables) {
  Submission any;
  any.spec.deterministic = true;
  const ErrorDetail refusal = DetailOf(CheckAlike(tables, any));
  return refusal.fields.empty() ? std::string() : refusal.fields.front().description;
}

// The reason why the ready workers, each of them or all together, refuse a request with the
// feature. Empty if they serve it, or none is ready.
std::string WhyRefused(const CoordinatorTables& tables, const Capability& capability) {
  std::string why;
  for (const auto& [number, worker] : tables.workers.all()) {
    if (!worker.ready()) continue;
    const std::optional<std::string> lacking = WhyLacking(worker.info, capability.feature);
    if (!lacking.has_value()) {
      return capability.field_path == "spec.deterministic" ? WhyNotDeterministic(tables) : "";
    }
    if (why.empty()) why = *lacking;
  }
  return why;
}

void DescribeCapabilities(const CoordinatorTables& tables, v1::ServerInfo* info) {
  for (const Capability& capability : CapabilityTable()) {
    const std::string lacking = capability.served ? WhyRefused(tables, capability) : std::string();
    v1::CapabilityInfo* view = info->add_capabilities();
    view->set_feature(capability.feature);
    view->set_served(capability.served && lacking.empty());
    view->set_why_not(capability.served ? lacking : capability.why_not);
    view->set_field_path(capability.field_path);
  }
}

absl::StatusOr<v1::ListJobsResponse> List(const CoordinatorTables& tables,
                                          const event::ListJobs& event) {
  int32_t size = event.request.page_size();
  if (size < 0) return InvalidPageError("page_size", "must be 0 or more");
  size = size == 0 ? kDefaultPage : std::min(size, kLargestPage);
  int64_t before = std::numeric_limits<int64_t>::max();
  const std::string& token = event.request.page_token();
  if (!token.empty() && (!absl::SimpleAtoi(token, &before) || before < 0)) {
    return InvalidPageError("page_token", "is not a page token of ListJobs");
  }
  const std::vector<const JobRecord*> jobs =
      tables.jobs.List(event.principal, before, static_cast<size_t>(size) + 1);
  v1::ListJobsResponse response;
  size_t bytes = 0, listed = 0;
  for (; listed < jobs.size() && listed < static_cast<size_t>(size); ++listed) {
    v1::Job job = JobView(*jobs[listed], JobDetail::kListed);
    bytes += job.ByteSizeLong();
    if (listed > 0 && bytes > tables.options.max_page_bytes) break;
    *response.add_jobs() = std::move(job);
  }
  if (jobs.size() > listed) {
    response.set_next_page_token(absl::StrCat(jobs[listed - 1]->number));
  }
  return response;
}

}  // namespace

void OnWatchJob(CoordinatorTables& tables, const event::WatchJob& event) {
  JobRecord* job = tables.jobs.Find(event.principal, event.job_id);
  if (job == nullptr) {
    tables.Emit(action::FinishCall{event.call, JobNotFoundError(event.job_id)});
  } else if (job->owners.size() + job->watchers.size() >= tables.options.max_calls_per_job) {
    tables.Emit(action::FinishCall{event.call, TooManyCallsError(tables.options.max_calls_per_job,
                                                                 tables.options.retry_after)});
  } else {
    Attach(tables, *job, event.call, CallKind::kWatcher);
  }
}

void OnGetJob(CoordinatorTables& tables, const event::GetJob& event) {
  const JobRecord* job = tables.jobs.Find(event.principal, event.job_id);
  if (job == nullptr) {
    tables.Emit(action::Answer{event.call, JobNotFoundError(event.job_id)});
  } else {
    const bool has_spec = !job->terminal() || job->kept.run != 0;
    tables.Emit(action::Answer{event.call,
                               JobView(*job, has_spec ? JobDetail::kFull : JobDetail::kListed)});
  }
}

void OnCancelJob(CoordinatorTables& tables, const event::CancelJob& event) {
  JobRecord* job = tables.jobs.Find(event.principal, event.job_id);
  if (job == nullptr) {
    tables.Emit(action::Answer{event.call, JobNotFoundError(event.job_id)});
    return;
  }
  EndJob(tables, *job, v1::Job::STATE_CANCELLED, CancelledByClientError());
  tables.Emit(action::Answer{event.call, JobView(*job, JobDetail::kListed)});
}

void OnListJobs(CoordinatorTables& tables, const event::ListJobs& event) {
  absl::StatusOr<v1::ListJobsResponse> page = List(tables, event);
  if (page.ok()) {
    tables.Emit(action::Answer{event.call, *std::move(page)});
  } else {
    tables.Emit(action::Answer{event.call, page.status()});
  }
}

void OnGetServerInfo(CoordinatorTables& tables, const event::GetServerInfo& event) {
  v1::ServerInfo info;
  info.set_version(tables.options.version);
  info.set_ready(tables.ready);
  DescribeLimits(tables.options, info.mutable_limits());
  DescribeWorkers(tables, &info);
  DescribeGroups(tables, &info);
  DescribeCapabilities(tables, &info);
  info.set_term(tables.term);
  const size_t queued = tables.queued_jobs();
  info.set_queued_jobs(static_cast<int32_t>(queued));
  info.set_running_jobs(static_cast<int32_t>(tables.jobs.active() - queued));
  tables.Emit(action::Answer{event.call, std::move(info)});
}

void OnCallGone(CoordinatorTables& tables, int64_t call) {
  JobRecord* job = tables.jobs.FindCall(call);
  if (job == nullptr) {
    const auto dry_run = std::find_if(tables.plannings.begin(), tables.plannings.end(),
                                      [call](const auto& p) { return p.second.call == call; });
    if (dry_run != tables.plannings.end()) tables.ForgetPlan(dry_run->first);
    return;
  }
  Leave(tables, *job, call);
}

}  // namespace annulus
