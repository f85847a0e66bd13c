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

// A way to run a job, what it is predicted to cost, and, for those not taken, why. Where a lower
// bound was enough to rule it out, only the seconds of `cost` are set, to that bound, and
// `rejected` says so.
struct Candidate {
  // Fully resolved: no kAuto, world_size > 0, degrees, stripe where it matters.
  Execution execution;
  Cost cost;
  std::string rejected;  // Empty for the one taken.
};

// What is chosen from, beside the request.
struct Choice {
  std::vector<int32_t> sizes;  // Group sizes on offer, 1 included.
  Rates rates;
  int64_t max_peak_bytes = 0;  // Device memory of a rank.
  // What corrects predictions, by kernels of this pace; nullptr: nothing.
  const PredictionCorrector* shown = nullptr;
  double pace = 1;
  // Counts also what cannot be taken, and what is never taken unasked (ExplainRejected), in groups
  // of up to 16. The one taken is the same.
  bool count_all = false;
};

// Chooses among the strategies × degrees × layouts × sizes that `wanted` leaves open: of those that
// are expected to take at most 8 % longer than the fastest the one that sends the fewest bytes
// (ties: the faster, then fewer ranks, then the order of EnumerateExecutions). The result begins
// with the one taken. A group is not even looked at where the work, shared out perfectly, cannot
// make up for its fixed cost; nor, in groups of more than 16 and of shards by area that nobody
// asked for, further ways when looking at them takes longer than all that they could save of
// predicted seconds and of the time of links (but see count_all). FAILED_PRECONDITION:
// INSUFFICIENT_WORKERS where world size or degrees of `wanted` exceed every size,
// INSUFFICIENT_CAPACITY where nothing fits into max_peak_bytes. UNIMPLEMENTED / NOT_SERVED where
// the job is deterministic and all that `wanted` leaves open adds up by rank; INVALID_ARGUMENT:
// INVALID_EXECUTION where it leaves nothing open, LIMIT_EXCEEDED where all that it leaves open has
// more than kMaxFoldTasks (attention/schedule/schedule.h), kMaxStripedMeetings or kMaxSequenceCuts
// (attention/mask/mask_cost.h).
absl::StatusOr<std::vector<Candidate>> ChooseExecution(const AttentionSpec& spec,
                                                       const Execution& wanted,
                                                       const Choice& choice);

// What is said of a way whose predicted time is `ratio` times that of the one taken.
std::string WhyNotTaken(double ratio);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_CHOOSE_EXECUTION_H_
