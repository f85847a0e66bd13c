#ifndef ANNULUS_ATTENTION_SPEC_PARALLEL_DEGREES_H_
#define ANNULUS_ATTENTION_SPEC_PARALLEL_DEGREES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/spec/spec.h"

namespace annulus {

// How the ranks of a job share a strategy. ulysses × ring is the world size, always. Rank r is
// member r mod ulysses of exchange r / ulysses; members of one number, one from each exchange, are
// a ring.
struct ParallelDegrees {
  int32_t ulysses = 1;     // Ranks that exchange heads.
  int32_t ring = 1;        // Ranks among which keys or queries then travel.
  int32_t inner_ring = 1;  // Of a double ring: neighbours, a divisor of `ring`. Else `ring`.
  HeadAssignment deal = HeadAssignment::kWholeHeads;
};

// Whether several of the ranks that exchange heads make gradients of one key/value head, and of a
// bias of one head, which are then sums of theirs. False for what makes no such gradients.
bool SharesKeyHeads(const AttentionSpec& spec, int32_t ulysses);
bool SharesBiasGradient(const AttentionSpec& spec, int32_t ulysses);

// Whether the degrees of an execution fit its strategy, its world size (0: any) and one another.
// INVALID_ARGUMENT / INVALID_EXECUTION with the field at fault. Fields are at least 0.
absl::Status CheckDegrees(const Execution& execution);

// The degrees of a resolved execution on `world_size` ranks. A field may be 0 where the strategy
// leaves no choice. INVALID_ARGUMENT / INVALID_EXECUTION where it does, and for what CheckDegrees
// refuses.
absl::StatusOr<ParallelDegrees> ParallelDegreesOf(const Execution& execution, int32_t world_size);

// `execution` on `world_size` ranks with its degrees and deal filled in, in every way that they
// leave open; none where they do not allow this many ranks. The strategy is not kAuto. A grid of
// one row or column, and a double ring of one ring, are a choice only where there is no other;
// units only where the degree does not divide the heads: elsewhere they are whole heads.
std::vector<Execution> ResolveDegrees(const Execution& execution, int32_t world_size,
                                      int32_t q_heads);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_PARALLEL_DEGREES_H_
