#ifndef ANNULUS_ATTENTION_SPEC_PARALLEL_DEGREES_H_
#define ANNULUS_ATTENTION_SPEC_PARALLEL_DEGREES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/spec/spec.h"

namespace annulus {

// How a strategy divides the ranks of a job. ulysses × ring is always the world size. Rank r is
// member r mod ulysses of exchange r / ulysses. The members with the same number, one from each
// exchange, form a ring.
struct ParallelDegrees {
  int32_t ulysses = 1;  // Ranks that exchange heads.
  int32_t ring = 1;     // Ranks between which keys or queries travel after the exchange.
  // Ranks of an inner ring in a double ring, which are neighbours; a divisor of `ring`. Equals
  // `ring` in other strategies.
  int32_t inner_ring = 1;
  HeadAssignment deal = HeadAssignment::kWholeHeads;
};

// True if several of the ranks that exchange heads compute gradients of one key/value head, or of a
// bias of one head. The gradient is then a sum over those ranks. False for jobs without such
// gradients.
bool SharesKeyHeads(const AttentionSpec& spec, int32_t ulysses);
bool SharesBiasGradient(const AttentionSpec& spec, int32_t ulysses);

// Checks that the degrees of an execution fit its strategy, its world size (0: any) and one
// another. INVALID_ARGUMENT / INVALID_EXECUTION with the field at fault. Requires: fields are at
// least 0.
absl::Status CheckDegrees(const Execution& execution);

// The degrees of a resolved execution on `world_size` ranks. A field may be 0 if the strategy
// determines it. INVALID_ARGUMENT / INVALID_EXECUTION for a field that is still open, and for what
// CheckDegrees refuses.
absl::StatusOr<ParallelDegrees> ParallelDegreesOf(const Execution& execution, int32_t world_size);

// Returns `execution` on `world_size` ranks with its degrees and head assignment filled in, once
// for each way that its open fields allow. Empty if they do not allow this world size. The strategy
// must not be kAuto. Some ways are only returned if there is no other:
//
// - a grid of one row or one column
// - a double ring of one ring
// - units, unless the degree does not divide q_heads; otherwise they equal whole heads
std::vector<Execution> ResolveDegrees(const Execution& execution, int32_t world_size,
                                      int32_t q_heads);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_PARALLEL_DEGREES_H_
