#ifndef ANNULUS_ATTENTION_PLANNING_CHOOSE_EXECUTION_H_
#define ANNULUS_ATTENTION_PLANNING_CHOOSE_EXECUTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/planning/cost_model.h"
#include "attention/planning/prediction_corrector.h"
#include "attention/spec/execution.h"
#include "attention/spec/spec.h"

namespace annulus {

// A way to run a job, its predicted cost, and, if it was not chosen, the reason. If a lower bound
// ruled it out, `cost` has only the seconds, set to that bound, and `rejected` says so.
struct Candidate {
  // Fully resolved: no kAuto, world_size > 0, degrees, and a stripe in the striped layout.
  Execution execution;
  Cost cost;
  std::string rejected;  // Empty for the chosen one.
};

// The inputs of the choice beside the request.
struct Choice {
  std::vector<int32_t> sizes;  // Group sizes available, including 1.
  Rates rates;
  int64_t max_peak_bytes = 0;  // Device memory of a rank, in bytes.
  // Corrects predictions for kernels of this pace; nullptr: no correction.
  const PredictionCorrector* shown = nullptr;
  double pace = 1;
  // True if costs are also computed for executions that do not fit and for those that auto never
  // chooses (ExplainRejected), in groups of up to 16. This does not change the choice.
  bool count_all = false;
};

// Chooses among the strategies × degrees × layouts × sizes that `wanted` leaves open. Among those
// expected to take at most 8 % longer than the fastest, it chooses the one that sends the fewest
// bytes. Ties: the faster, then fewer ranks, then the order of EnumerateExecutions. The result
// begins with the chosen candidate. Pure, apart from `choice.shown`.
//
// Some executions are not evaluated (but see count_all):
//
// - a group for which perfectly shared work cannot make up for its fixed cost
// - in groups of more than 16, and for shards by area that the request does not name: further
//   executions, once evaluating them would take longer than they could save in predicted seconds
//   and in link time
//
// Errors:
//
// - FAILED_PRECONDITION / INSUFFICIENT_WORKERS: world size or degrees of `wanted` exceed every size
// - FAILED_PRECONDITION / INSUFFICIENT_CAPACITY: nothing fits into max_peak_bytes
// - UNIMPLEMENTED / NOT_SERVED: the job is deterministic, and every execution that `wanted` allows
//   adds sums by rank
// - INVALID_ARGUMENT / INVALID_EXECUTION: `wanted` allows no execution
// - INVALID_ARGUMENT / LIMIT_EXCEEDED: every execution is above kMaxFoldTasks
//   (attention/schedule/schedule.h), kMaxStripedMeetings or kMaxSequenceCuts
//   (attention/mask/mask_cost.h)
absl::StatusOr<std::vector<Candidate>> ChooseExecution(const AttentionSpec& spec,
                                                       const Execution& wanted,
                                                       const Choice& choice);

// The reason for an execution whose predicted time is `ratio` times that of the chosen one.
std::string WhyNotTaken(double ratio);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_CHOOSE_EXECUTION_H_
