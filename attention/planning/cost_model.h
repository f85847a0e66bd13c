#ifndef ANNULUS_ATTENTION_PLANNING_COST_MODEL_H_
#define ANNULUS_ATTENTION_PLANNING_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/planning/kernel_rates.h"
#include "attention/schedule/schedule.h"
#include "attention/sharding/shard_plan.h"

namespace annulus {

// The rates of a group's slowest worker, from which the cost model predicts. Workers measure them
// at start and report them when they register. job_seconds and overlap_loss are constants.
struct Rates {
  // The job's kernel at its dimensions, in seconds per unit of work
  // (attention/planning/kernel_rates.h).
  double pair_seconds = 5e-9;
  double row_seconds = 0;
  double key_seconds = 0;
  double link_bytes_per_second = 1e9;  // One way, between two ranks.
  double step_seconds = 2e-4;          // Fixed cost of a step with a transfer.
  double job_seconds = 5e-4;           // Extra fixed cost of a job on a group.
  // The share of the shorter of a step's tasks and transfers that is not hidden: moving bytes takes
  // cores and memory bandwidth from a kernel. Measured on CPU workers: all of it if kernels use
  // every core, little if cores are free.
  double overlap_loss = 0.5;

  KernelRate kernel() const { return {0, pair_seconds, row_seconds, key_seconds}; }
  void SetKernel(const KernelRate& rate) {
    pair_seconds = rate.pair_seconds;
    row_seconds = rate.row_seconds;
    key_seconds = rate.key_seconds;
  }
};

// The bytes that one rank sends to another.
struct Link {
  int32_t from = 0, to = 0;
  int64_t bytes = 0;
};

// The predicted cost of a group's schedules.
struct Cost {
  double seconds = 0;           // Predicted time of the slowest rank, including job_seconds.
  double job_seconds = 0;       // The part of `seconds` that a group job takes outside its steps.
  double expected_seconds = 0;  // `seconds`, corrected by measured runs (PredictionCorrector).
  int64_t peak_bytes_per_rank = 0;  // The largest arena, and verdict bytes.
  double balance = 1;               // Largest work of a rank over the mean; 1 if there is no work.
  std::vector<int64_t> bytes_sent;  // By rank.
  std::vector<Link> links;          // Links with any bytes, by `from`, then by `to`.
  std::vector<int64_t> visible_pairs;  // By rank, × query heads.
  std::vector<int64_t> task_rows;      // By rank: query rows × query heads of all tasks.
  std::vector<int64_t> task_keys;      // By rank: keys that tasks read × key/value heads.

  KernelWork WorkOf(int32_t rank) const;
};

// Predicted seconds of each step of one rank, as in PredictCost.
std::vector<double> StepSeconds(const RankSchedule& schedule, const ScheduleRequest& request,
                                const Rates& rates);

// Predicts the cost of a request. A rank's step takes
//
// - the longer of its tasks and its transfers, since they overlap,
// - plus overlap_loss of the shorter,
// - plus step_seconds if it has a transfer.
//
// Tasks count by visible pairs and rows × query heads, and by keys read × key/value heads.
// Transfers count by the larger of bytes sent and bytes received. Pure. Errors: those of
// MakeGroupSchedules.
absl::StatusOr<Cost> PredictCost(const ScheduleRequest& request, const Rates& rates);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_COST_MODEL_H_
