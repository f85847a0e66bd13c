#ifndef ANNULUS_ATTENTION_PLANNING_CANDIDATE_PLANS_H_
#define ANNULUS_ATTENTION_PLANNING_CANDIDATE_PLANS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/spec/execution.h"
#include "attention/spec/spec.h"

namespace annulus {

// Enumerates the executions that a request leaves open. Pure functions, without costs.

// The group sizes in `sizes` that the world size and degrees of `wanted` allow, in increasing
// order. A group may have more workers than a job has ranks. So a size that is not a multiple of
// the degrees, or of inner rings, is rounded down to one. At least 2 for bf16_partials.
// FAILED_PRECONDITION / INSUFFICIENT_WORKERS if `wanted` needs more than the largest size.
absl::StatusOr<std::vector<int32_t>> EnumerateWorldSizes(const Execution& wanted,
                                                         std::vector<int32_t> sizes);

// All fully resolved executions on `size` ranks that `wanted` allows, best first in case of equal
// predictions. Open fields take the strategies that auto chooses from, the layouts contiguous and
// zigzag, and all degrees and head assignments. Leaves out executions that a deterministic job may
// not use and, for bf16_partials, those that send no partials.
std::vector<Execution> EnumerateExecutions(const Execution& wanted, int32_t size,
                                           const AttentionSpec& spec);

// The executions that a request allows but auto never chooses, with the reason. `wanted` is a
// valid, narrower request; EnumerateExecutions lists its executions. Layouts are listed for one
// strategy of auto only. Striped shards are listed only if no mask makes them slow to plan.
struct RejectedExecutions {
  Execution wanted;
  const char* why;
};
std::vector<RejectedExecutions> ExplainRejected(const Execution& wanted, const AttentionSpec& spec);

// For a request that allows no execution at any of `sizes`: the options of `wanted` each of which,
// if left out, would allow one. Returns names of fields of Execution, in their order. If there are
// fewer than two such options, returns all options that are set.
std::vector<std::string> OptionsThatExclude(const Execution& wanted,
                                            const std::vector<int32_t>& sizes,
                                            const AttentionSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_CANDIDATE_PLANS_H_
