#ifndef ANNULUS_CLIENT_SESSION_SESSION_STATS_H_
#define ANNULUS_CLIENT_SESSION_SESSION_STATS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "annulus/v1/types.pb.h"

namespace annulus {

// What a job took, from what its session sees and its workers say: known when the outputs are,
// before the coordinator has heard of them. One owner at a time; times are of one steady clock.
class SessionStats {
 public:
  SessionStats(absl::Time submitted, v1::Outputs::LseBase lse_base)
      : submitted_(submitted), lse_base_(lse_base) {}

  // A new attempt: what was known of the one before is gone.
  void Placed(const std::string& job_id, const v1::Plan& plan, absl::Time now);
  // The shard of one rank is complete.
  void Uploaded(absl::Time now) { uploaded_ = now; }
  void Reported(int32_t rank, const v1::ShardReport& report) { reports_[rank] = report; }

  // Nothing while a rank has not reported.
  std::optional<v1::JobStats> Get() const;
  // As if those ranks that have not had taken and sent nothing. Empty before a placement.
  v1::JobStats Heard() const;

 private:
  const absl::Time submitted_;
  const v1::Outputs::LseBase lse_base_;
  absl::Time placed_, uploaded_;
  v1::JobStats stats_;  // Without what the reports say.
  int32_t ranks_ = 0;
  std::map<int32_t, v1::ShardReport> reports_;  // By rank.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_SESSION_STATS_H_
