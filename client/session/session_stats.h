#ifndef ANNULUS_CLIENT_SESSION_SESSION_STATS_H_
#define ANNULUS_CLIENT_SESSION_SESSION_STATS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "annulus/v1/types.pb.h"

namespace annulus {

// The stats of a job, from the session's own times and the workers' reports. They are complete as
// soon as the outputs are, before the coordinator has processed them. Not thread-safe. Times are of
// one steady clock.
class SessionStats {
 public:
  SessionStats(absl::Time submitted, v1::Outputs::LseBase lse_base)
      : submitted_(submitted), lse_base_(lse_base) {}

  // Starts a new attempt; drops the data of the previous one.
  void Placed(const std::string& job_id, const v1::Plan& plan, absl::Time now);
  // The upload of one shard is complete.
  void Uploaded(absl::Time now) { uploaded_ = now; }
  void Reported(int32_t rank, const v1::ShardReport& report) { reports_[rank] = report; }

  // The stats, or nothing while the report of a rank is missing.
  std::optional<v1::JobStats> Get() const;
  // The stats with zeros for ranks without a report. Empty before the first placement.
  v1::JobStats Heard() const;

 private:
  const absl::Time submitted_;
  const v1::Outputs::LseBase lse_base_;
  absl::Time placed_, uploaded_;
  v1::JobStats stats_;  // All but the reports' part.
  int32_t ranks_ = 0;
  std::map<int32_t, v1::ShardReport> reports_;  // By rank.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_SESSION_STATS_H_
