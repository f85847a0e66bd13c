#ifndef ANNULUS_ATTENTION_PLANNING_COST_MODEL_H_
#define ANNULUS_ATTENTION_PLANNING_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/planning/kernel_rates.h"
#include "attention/schedule/schedule.h"
#include "attention/sharding/shard_plan.h"

namespace annulus {

// What the cost model reckons with for a job, of a group's slowest worker: measured by the workers
// at start and reported when they register, but for job_seconds and overlap_loss, which are
// constants.
struct Rates {
  // Of the job's kernel at its dimensions (attention/planning/kernel_rates.h).
  double pair_seconds = 5e-9;
  double row_seconds = 0;
  double key_seconds = 0;
  double link_bytes_per_second = 1e9;  // One way, between two ranks.
  double step_seconds = 2e-4;          // Of a step with a transfer.
  double job_seconds = 5e-4;           // Of a group job over a job on one worker.
  // What shows of the shorter of a step's tasks and transfers: moving bytes takes cores and memory
  // from a kernel. Measured on CPU workers: all of it where kernels have every core, little where
  // cores are free.
  double overlap_loss = 0.5;

  KernelRate kernel() const { return {0, pair_seconds, row_seconds, key_seconds}; }
  void SetKernel(const KernelRate& rate) {
    pair_seconds = rate.pair_seconds;
    row_seconds = rate.row_seconds;
    key_seconds = rate.key_seconds;
  }
};

// What one rank sends to another, one way.
struct Link {
  int32_t from = 0, to = 0;
  int64_t bytes = 0;
};

// What a schedule costs, summed from its data.
struct Cost {
  double seconds = 0;                  // Predicted, of the slowest rank.
  double job_seconds = 0;              // What of that a group job takes beside its steps.
  double expected_seconds = 0;         // `seconds`, corrected by what jobs have shown.
  int64_t peak_bytes_per_rank = 0;     // Largest arena.
  double balance = 1;                  // Largest over mean work; 1 when there is none.
  std::vector<int64_t> bytes_sent;     // By rank.
  std::vector<Link> links;             // Those with any bytes, by `from`, then by `to`.
  std::vector<int64_t> visible_pairs;  // By rank, × query heads.
  std::vector<int64_t> task_rows;      // By rank: query rows × heads of all tasks.
  std::vector<int64_t> task_keys;      // By rank: keys that tasks read × key/value heads.

  KernelWork WorkOf(int32_t rank) const;
};

// Predicted seconds of each step of a rank, as PredictCost counts them.
std::vector<double> StepSeconds(const RankSchedule& schedule, const ScheduleRequest& request,
                                const Rates& rates);

// Predicts a schedule: a rank's step takes as long as the longer of its tasks (by their visible
// pairs and rows × query heads, and by the keys that they read × key/value heads) and its transfers
// (the larger of what it sends and what it receives), since they overlap, and a part of the
// shorter.
absl::StatusOr<Cost> PredictCost(const ScheduleRequest& request, const Rates& rates);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_COST_MODEL_H_
