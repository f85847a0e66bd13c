#include "client/session_stats.h"

#include <algorithm>

#include "proto/convert.h"
#include "proto/job_stats.h"

namespace annulus {

void SessionStats::Placed(const std::string& job_id, const v1::Plan& plan, absl::Time now) {
  placed_ = uploaded_ = now;
  ranks_ = plan.shards_size();
  reports_.clear();
  stats_.Clear();
  stats_.set_job_id(job_id);
  stats_.set_attempts(std::max(plan.attempt(), 1));
  *stats_.mutable_execution() = plan.execution();
}

std::optional<v1::JobStats> SessionStats::Get() const {
  if (reports_.empty() || static_cast<int32_t>(reports_.size()) != ranks_) return std::nullopt;
  v1::JobStats stats = stats_;
  *stats.mutable_queued() = DurationToProto(placed_ - submitted_);
  *stats.mutable_uploading() = DurationToProto(uploaded_ - placed_);
  for (const auto& [rank, report] : reports_) AddReport(report, &stats);
  return stats;
}

}  // namespace annulus
