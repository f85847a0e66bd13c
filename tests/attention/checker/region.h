#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_REGION_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_REGION_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"
#include "attention/spec/interval.h"

namespace annulus {

// Local rows × heads of one shard.
struct Patch {
  Interval rows;
  Interval heads;
  int64_t cells() const { return rows.length() * heads.length(); }
};

Patch PatchOf(const Block& block);
Patch Intersect(const Patch& a, const Patch& b);

// A set of (row, head) cells as disjoint patches.
class Region {
 public:
  // Requires: the patch does not overlap the region.
  void Add(const Patch& patch);
  bool Overlaps(const Patch& patch) const { return CellsIn(patch) > 0; }
  bool Contains(const Patch& patch) const { return CellsIn(patch) == patch.cells(); }
  int64_t cells() const;

 private:
  int64_t CellsIn(const Patch& patch) const;

  std::vector<Patch> patches_;
};

// A part of an accumulator's content: its own rows × query heads × rows `others` of shard
// `other_shard`. Own rows are queries and others keys; for key gradients the reverse.
struct Attended {
  Patch own;
  Interval others;
  int32_t other_shard = 0;
};

// `seen`, restricted to the rows and query heads of `patch`.
std::vector<Attended> Restrict(const std::vector<Attended>& seen, const Patch& patch);

// True if no (query row, head, key row) is in two entries. O(n log n), except for entries with
// overlapping `others`.
bool Disjoint(std::vector<Attended> seen);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_REGION_H_
