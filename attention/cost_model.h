#ifndef ANNULUS_ATTENTION_COST_MODEL_H_
#define ANNULUS_ATTENTION_COST_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/schedule.h"
#include "attention/shard_plan.h"

namespace annulus {

// What the cost model reckons with, of a group's slowest worker: measured by the workers at start
// and reported when they register, but for job_seconds and overlap_loss, which are constants.
struct Rates {
  double flops_per_second = 1e11;  // Of the kernel in use, at head dimensions of 128.
  double pair_seconds = 0;         // What of a visible pair's time is the same at any dimension.
  double link_bytes_per_second = 1e9;  // One way, between two ranks.
  double row_seconds = 0;              // Of a query row and head of a task, beside its pairs.
  double step_seconds = 2e-4;          // Of a step with a transfer.
  double job_seconds = 5e-4;           // Of a group job over a job on one worker.
  // What shows of the shorter of a step's tasks and transfers: moving bytes takes cores and memory
  // from a kernel. Measured on CPU workers: all of it where kernels have every core, little where
  // cores are free.
  double overlap_loss = 0.5;
};

// What one rank sends to another, one way.
struct Link {
  int32_t from = 0, to = 0;
  int64_t bytes = 0;
};

// What a schedule costs, summed from its data.
struct Cost {
  double seconds = 0;                  // Predicted, of the slowest rank.
  int64_t peak_bytes_per_rank = 0;     // Largest arena.
  double balance = 1;                  // Largest over mean work; 1 when there is none.
  std::vector<int64_t> bytes_sent;     // By rank.
  std::vector<Link> links;             // Those with any bytes, by `from`, then by `to`.
  std::vector<int64_t> visible_pairs;  // By rank, × query heads.
};

// Predicted seconds of each step of a rank, as PredictCost counts them.
std::vector<double> StepSeconds(const RankSchedule& schedule, const ScheduleRequest& request,
                                const Rates& rates);

// Predicts a schedule: a rank's step takes as long as the longer of its tasks (2·head_dim +
// 2·value_dim FLOPs for each visible pair and query head, 6·head_dim + 4·value_dim for gradients)
// and its transfers (the larger of what it sends and what it receives), since they overlap, and a
// part of the shorter.
absl::StatusOr<Cost> PredictCost(const ScheduleRequest& request, const Rates& rates);

// A way to run a job, what it is predicted to cost, and, for those not taken, why. Where a lower
// bound was enough to rule it out, only cost.seconds is set, to that bound.
struct Candidate {
  Execution
      execution;  // Fully resolved: no kAuto, world_size > 0, degrees, stripe where it matters.
  Cost cost;
  std::string rejected;  // Empty for the one taken.
};

// What is chosen from, beside the request.
struct Choice {
  std::vector<int32_t> sizes;  // Group sizes on offer, 1 included.
  Rates rates;
  int64_t max_peak_bytes = 0;  // Device memory of a rank.
};

// Chooses among the strategies × degrees × layouts × sizes that `wanted` leaves open, by predicted
// time (ties: fewer ranks, then the order of the tables in cost_model.cc). The result begins with
// the one taken. A group is not even looked at where the work, shared out perfectly, cannot make up
// for its fixed cost, nor, in groups of more than 16, once one is within 1 % of work shared out
// perfectly. FAILED_PRECONDITION: INSUFFICIENT_WORKERS where world size or degrees of `wanted`
// exceed every size, INSUFFICIENT_CAPACITY where nothing fits into max_peak_bytes. UNIMPLEMENTED /
// NOT_SERVED where the job is deterministic and all that `wanted` leaves open adds up by rank;
// INVALID_ARGUMENT / INVALID_EXECUTION where it leaves nothing open.
absl::StatusOr<std::vector<Candidate>> ChooseExecution(const AttentionSpec& spec,
                                                       const Execution& wanted,
                                                       const Choice& choice);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_COST_MODEL_H_
