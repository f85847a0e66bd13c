#ifndef ANNULUS_ATTENTION_PLANNING_CANDIDATE_PLANS_H_
#define ANNULUS_ATTENTION_PLANNING_CANDIDATE_PLANS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/spec/execution.h"
#include "attention/spec/spec.h"

namespace annulus {

// What an execution leaves open, as pure functions: no costs.

// The sizes on offer, in increasing order, as far as world size and degrees allow them. A group of
// more workers than a job has ranks can run it, so a size that is no multiple of the degrees is
// rounded down to one, as it is to a multiple of inner rings. At least 2 for bf16_partials.
// FAILED_PRECONDITION / INSUFFICIENT_WORKERS where `wanted` exceeds all.
absl::StatusOr<std::vector<int32_t>> EnumerateWorldSizes(const Execution& wanted,
                                                         std::vector<int32_t> sizes);

// All fully resolved ways to run a job on `size` ranks, best first where predictions tie: the
// strategies that auto chooses from, the layouts contiguous and zigzag, and all degrees and deals.
// None that a deterministic job may not take, nor, for bf16_partials, any that sends none.
std::vector<Execution> EnumerateExecutions(const Execution& wanted, int32_t size,
                                           const AttentionSpec& spec);

// What a request leaves open and auto never takes: a narrower request that is valid, whose ways
// EnumerateExecutions lists, and why. Of layouts by one strategy that auto would take; of striped
// shards only where no mask makes them long to plan.
struct RejectedExecutions {
  Execution wanted;
  const char* why;
};
std::vector<RejectedExecutions> ExplainRejected(const Execution& wanted, const AttentionSpec& spec);

// Of a request that leaves no way open at any of the sizes on offer: the options of `wanted`,
// fields of Execution by name and in their order, of which any one less would leave some; where
// those are fewer than two, all that it has.
std::vector<std::string> OptionsThatExclude(const Execution& wanted,
                                            const std::vector<int32_t>& sizes,
                                            const AttentionSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_CANDIDATE_PLANS_H_
