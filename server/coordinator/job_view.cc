#include "server/coordinator/job_view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/wire/convert.h"

namespace annulus {

std::string WayText(const Execution& execution, const Cost& cost) {
  std::string text =
      absl::StrCat(StrategyName(execution.strategy), ", ", LayoutName(execution.layout));
  if (execution.ulysses_degree > 1 && execution.ring_degree > 1) {
    absl::StrAppend(&text, ", ", execution.ulysses_degree, " x ", execution.ring_degree);
  }
  absl::StrAppend(&text, ", ", execution.world_size,
                  execution.world_size == 1 ? " worker" : " workers",
                  absl::StrFormat(": %.3g ms", cost.expected_seconds * 1e3));
  if (cost.bytes_sent.empty()) return text;
  absl::StrAppend(&text, ", at most ", MostBytesSent(cost), " bytes a worker");
  return text;
}

std::string RejectedText(const Candidate& candidate) {
  return absl::StrCat("rejected ", WayText(candidate.execution, candidate.cost), ": ",
                      candidate.rejected);
}

namespace {

v1::KeptState::Status StatusView(KeptStatus status) {
  switch (status) {
    case KeptStatus::kHeld:
      return v1::KeptState::STATUS_HELD;
    case KeptStatus::kReleased:
      return v1::KeptState::STATUS_RELEASED;
    case KeptStatus::kExpired:
      return v1::KeptState::STATUS_EXPIRED;
    case KeptStatus::kLost:
      return v1::KeptState::STATUS_LOST;
    case KeptStatus::kNone:
    case KeptStatus::kAwaited:
      return v1::KeptState::STATUS_UNSPECIFIED;
  }
  return v1::KeptState::STATUS_UNSPECIFIED;
}

void DescribeState(const JobRecord& job, v1::KeptState* view) {
  view->set_status(StatusView(job.kept.status));
  if (job.kept.expires != absl::InfiniteFuture()) {
    *view->mutable_expire_time() = TimeToProto(job.kept.expire_time);
  }
  view->set_users(job.kept.users);
  if (job.kept.run == 0) return;
  int64_t bytes = 0;
  for (const ShardBytes& of : job.plan->bytes) bytes += of.total();
  view->set_held_bytes(bytes);
}

double CorrectionOf(const Cost& cost) {
  return cost.seconds > 0 ? cost.expected_seconds / cost.seconds : 1;
}

}  // namespace

v1::Plan PlanView(const JobPlan& plan) {
  v1::Plan view;
  *view.mutable_execution() = ExecutionToProto(plan.execution);
  for (const Shard& shard : plan.shards.shards) {
    v1::ShardPlan* of = view.add_shards();
    of->set_rank(shard.owner);
    RowMapToProto(shard.q_rows, of->mutable_q_rows());
    RowMapToProto(shard.kv_rows, of->mutable_kv_rows());
    of->set_input_bytes(plan.bytes[shard.owner].input);
    of->set_output_bytes(plan.bytes[shard.owner].output);
  }
  *view.mutable_predicted_time() = DurationToProto(absl::Seconds(plan.cost.expected_seconds));
  view.set_correction(CorrectionOf(plan.cost));
  view.set_peak_bytes_per_rank(plan.cost.peak_bytes_per_rank);
  view.set_balance(plan.cost.balance);
  for (int64_t bytes : plan.cost.bytes_sent) view.add_bytes_sent_per_rank(bytes);
  for (const Link& link : plan.cost.links) {
    v1::Link* of = view.add_links();
    of->set_from_rank(link.from);
    of->set_to_rank(link.to);
    of->set_bytes(link.bytes);
  }
  for (const Candidate& candidate : plan.rejected) {
    v1::Rejected* rejected = view.add_rejected();
    *rejected->mutable_execution() = ExecutionToProto(candidate.execution);
    rejected->set_reason(candidate.rejected);
    *rejected->mutable_predicted_time() =
        DurationToProto(absl::Seconds(candidate.cost.expected_seconds));
    rejected->set_correction(CorrectionOf(candidate.cost));
    rejected->set_bytes_sent_per_rank(MostBytesSent(candidate.cost));
    rejected->set_bound_only(candidate.cost.bytes_sent.empty());
  }
  return view;
}

v1::Job JobView(const JobRecord& job, JobDetail detail) {
  v1::Job view;
  view.set_job_id(job.id);
  view.set_request_id(std::string(job.request_id()));
  view.set_state(job.state);
  if (detail == JobDetail::kFull) *view.mutable_spec() = job.submission->request.spec();
  *view.mutable_execution() = job.submission->request.execution();
  if (job.has_placement && detail != JobDetail::kEvent) *view.mutable_plan() = job.placement;
  if (!job.error.ok()) *view.mutable_error() = ErrorToProto(job.error);
  *view.mutable_create_time() = TimeToProto(job.create_time);
  if (job.terminal()) *view.mutable_end_time() = TimeToProto(job.end_time);
  if (job.state == v1::Job::STATE_DRAINING || job.state == v1::Job::STATE_SUCCEEDED) {
    *view.mutable_stats() = job.stats;
  }
  if (job.kept.status != KeptStatus::kNone && job.state == v1::Job::STATE_SUCCEEDED) {
    DescribeState(job, view.mutable_kept_state());
  }
  return view;
}

}  // namespace annulus
