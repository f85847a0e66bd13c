#ifndef ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_HEAD_PARTITION_H_
#define ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_HEAD_PARTITION_H_

#include <cstdint>
#include <vector>

#include "attention/spec/interval.h"
#include "attention/spec/parallel_degrees.h"
#include "attention/spec/spec.h"

namespace annulus {

// How the members of an exchange share out the heads, whatever their number.
//
// Whole heads: member u computes query heads [u·Hq/U, (u+1)·Hq/U) of all rows. Units: a unit is one
// head of one member's rows; of the units (head h, member e), numbered h·U + e, member u computes
// [u·Hq, (u+1)·Hq): as many of each for all, and the same as whole heads where U divides Hq.
//
// Key/value heads are cut wherever the range of some member begins or ends. Each piece, an atom, is
// a block of its own, so that what a member needs is whole blocks.
class HeadPartition {
 public:
  HeadPartition(const AttentionSpec& spec, const ParallelDegrees& degrees);

  // Query heads of the rows of member `of` that `member` computes; may be empty.
  Interval Queries(int32_t of, int32_t member) const { return queries_[of * members_ + member]; }
  // All atoms, in order, and the numbers of those that `member` needs.
  const std::vector<Interval>& atoms() const { return atoms_; }
  Interval AtomsOf(int32_t member) const { return atoms_of_[member]; }
  // Whether `member` computes heads of an atom for the rows of member `of`.
  bool Uses(int32_t member, int32_t of, int32_t atom) const;

 private:
  int32_t members_, group_;
  std::vector<Interval> queries_;  // [of][member]
  std::vector<Interval> atoms_, atoms_of_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_HEAD_PARTITION_H_
