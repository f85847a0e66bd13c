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

// Inputs of planning: the job and the cluster.
struct PlanRequest {
  std::shared_ptr<const Submission> submission;
  Execution execution;            // The submission's, or limited by a state that it uses.
  std::vector<int32_t> sizes;     // Group sizes on offer, increasing; 1 included.
  Rates rates;                    // Rates of the slowest worker.
  double factor = 1;              // Kernel rate over the slowest worker's measured rate.
  PredictionCorrector ways;       // Measured over predicted times of jobs.
  int64_t max_device_bytes = 0;   // Smallest device budget.
  int64_t max_staging_bytes = 0;  // Smallest staging budget.
  int64_t max_kept_bytes = 0;     // Part of staging for kept states.
  absl::Duration segment_target = absl::Milliseconds(100);
  bool count_all = false;  // Count all candidates, see Choice. For dry runs.
};

// Bytes of one shard in staging.
struct ShardBytes {
  int64_t input = 0;
  int64_t output = 0;
  int64_t kept = 0;  // Results that no client fetches.
  int64_t total() const { return input + output + kept; }
};

// How a job will run: the source of all messages to workers and clients.
struct JobPlan {
  Execution execution;  // Every choice is made.
  int64_t granule = 1;
  Cost cost;
  double pair_seconds = 0;  // Kernel rate in `cost`,
  double factor = 1;        // over the slowest worker's measured rate.
  std::vector<Candidate> rejected;
  ShardPlan shards;
  std::vector<ShardBytes> bytes;       // By rank.
  std::vector<int32_t> parts_of_step;  // Empty: no step is split.
  // Predicted time of a rank's longest step, if long steps could not be split. The kernel is
  // assumed to be no faster than it measured itself, perhaps beside other load.
  absl::Duration longest_step = absl::ZeroDuration();
  int32_t segments = 1;  // At most; fewer if there are fewer steps.
  int32_t world_size() const { return shards.world_size; }
};

using PlanResult = absl::StatusOr<std::shared_ptr<const JobPlan>>;
using PlanFunction = std::function<PlanResult(const PlanRequest&)>;

// Staging bytes of each rank's shard.
std::vector<ShardBytes> BytesOfShards(const AttentionSpec& spec, const ShardPlan& plan);
int64_t LargestShard(const std::vector<ShardBytes>& bytes);
// The most bytes that one rank sends; 0 if they were not counted.
int64_t MostBytesSent(const Cost& cost);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_JOB_PLAN_H_
