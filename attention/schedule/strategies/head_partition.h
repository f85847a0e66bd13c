#ifndef ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_HEAD_PARTITION_H_
#define ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_HEAD_PARTITION_H_

#include <cstdint>
#include <vector>

#include "attention/spec/interval.h"
#include "attention/spec/parallel_degrees.h"
#include "attention/spec/spec.h"

namespace annulus {

// How the U members of an exchange divide the Hq query heads, for any U. Immutable.
//
// - Whole heads: member u computes query heads [u·Hq/U, (u+1)·Hq/U) of all rows.
// - Units: a unit is one query head of one member's rows. Unit (head h, member e) has number h·U +
//   e; member u computes units [u·Hq, (u+1)·Hq). So all members compute equally many. If U divides
//   Hq, this equals whole heads.
//
// Key/value heads are cut wherever the range of some member begins or ends. Each piece, an atom, is
// a block of its own, so a member needs whole blocks only.
class HeadPartition {
 public:
  HeadPartition(const AttentionSpec& spec, const ParallelDegrees& degrees);

  // Query heads of the rows of member `of` that `member` computes; may be empty.
  Interval Queries(int32_t of, int32_t member) const { return queries_[of * members_ + member]; }
  // atoms(): all atoms as intervals of key/value heads, in order. AtomsOf: the numbers of the atoms
  // that `member` needs.
  const std::vector<Interval>& atoms() const { return atoms_; }
  Interval AtomsOf(int32_t member) const { return atoms_of_[member]; }
  // True if `member` computes heads of an atom for the rows of member `of`.
  bool Uses(int32_t member, int32_t of, int32_t atom) const;

 private:
  int32_t members_, group_;
  std::vector<Interval> queries_;  // [of][member].
  std::vector<Interval> atoms_, atoms_of_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_HEAD_PARTITION_H_
