#include "client/session/session_stats.h"

#include <algorithm>

#include "proto/wire/convert.h"
#include "proto/wire/job_stats.h"

namespace annulus {

void SessionStats::Placed(const std::string& job_id, const v1::Plan& plan, absl::Time now) {
  placed_ = uploaded_ = now;
  ranks_ = plan.shards_size();
  reports_.clear();
  stats_.Clear();
  stats_.set_job_id(job_id);
  stats_.set_attempts(std::max(plan.attempt(), 1));
  *stats_.mutable_execution() = plan.execution();
  stats_.set_balance(plan.balance());
  stats_.set_lse_base(lse_base_);
}

std::optional<v1::JobStats> SessionStats::Get() const {
  if (reports_.empty() || static_cast<int32_t>(reports_.size()) != ranks_) return std::nullopt;
  return Heard();
}

v1::JobStats SessionStats::Heard() const {
  v1::JobStats stats = stats_;
  if (ranks_ == 0) return stats;
  *stats.mutable_queued() = DurationToProto(placed_ - submitted_);
  *stats.mutable_uploading() = DurationToProto(uploaded_ - placed_);
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto report = reports_.find(rank);
    AddReport(report != reports_.end() ? report->second : v1::ShardReport(), &stats);
  }
  return stats;
}

}  // namespace annulus
