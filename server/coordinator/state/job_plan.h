#ifndef ANNULUS_SERVER_COORDINATOR_STATE_JOB_PLAN_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_JOB_PLAN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/planning/choose_execution.h"
#include "attention/planning/prediction_corrector.h"
#include "attention/sharding/shard_plan.h"
#include "server/coordinator/state/submission.h"

namespace annulus {

// What planning needs to know of a job and of the cluster.
struct PlanRequest {
  std::shared_ptr<const Submission> submission;
  Execution execution;  // As the submission asks, or what a state that it uses leaves of that.
  std::vector<int32_t> sizes;     // Group sizes on offer, increasing; 1 included.
  Rates rates;                    // Of the slowest worker.
  double factor = 1;              // Of the rates' kernel over what the slowest measured of it.
  PredictionCorrector ways;       // What jobs have shown.
  int64_t max_device_bytes = 0;   // Smallest device budget.
  int64_t max_staging_bytes = 0;  // Smallest staging budget.
  int64_t max_kept_bytes = 0;     // What a kept state may take of it.
  absl::Duration segment_target = absl::Milliseconds(100);
  bool count_all = false;  // See Choice: for who asks what there is to choose from.
};

// Bytes of one shard in staging.
struct ShardBytes {
  int64_t input = 0;
  int64_t output = 0;
  int64_t kept = 0;  // Results that no client fetches.
  int64_t total() const { return input + output + kept; }
};

// How a job will run: all that the coordinator tells workers and clients.
struct JobPlan {
  Execution execution;  // Fully resolved.
  int64_t granule = 1;
  Cost cost;
  double pair_seconds = 0;  // That `cost` reckons with,
  double factor = 1;        // over what the slowest worker measured: see PlanRequest.
  std::vector<Candidate> rejected;
  ShardPlan shards;
  std::vector<ShardBytes> bytes;       // By rank.
  std::vector<int32_t> parts_of_step;  // Empty: no step is split.
  // Where long steps could not be split: the longest that a rank is predicted to be in one of them,
  // of a kernel no faster than it measured itself, perhaps beside others.
  absl::Duration longest_step = absl::ZeroDuration();
  int32_t segments = 1;  // At most; fewer when there are fewer steps.
  int32_t world_size() const { return shards.world_size; }
};

using PlanResult = absl::StatusOr<std::shared_ptr<const JobPlan>>;
using PlanFunction = std::function<PlanResult(const PlanRequest&)>;

// Staging bytes of each rank's shard.
std::vector<ShardBytes> BytesOfShards(const AttentionSpec& spec, const ShardPlan& plan);
int64_t LargestShard(const std::vector<ShardBytes>& bytes);
// Of one rank; 0 where they have not been counted.
int64_t MostBytesSent(const Cost& cost);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_JOB_PLAN_H_
