#ifndef ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_ALLOCATOR_H_
#define ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_ALLOCATOR_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "attention/spec/interval.h"

namespace annulus {

// First-fit placement of slots that have a life. Each slot gets the lowest offset at which it
// overlaps no earlier slot that is alive at the same time. Many slots share few distinct lives. So
// the bytes taken during each life are kept as joined intervals, and a slot is not compared with
// every other one. Not thread-safe.
class ArenaAllocator {
 public:
  using Life = std::pair<int32_t, int32_t>;  // First and last half-step, both included.

  // `lives`: the lives of all slots to be placed, in any order, repeats allowed.
  explicit ArenaAllocator(std::vector<Life> lives);

  // Places the next slot and returns its offset. `life` must be one of those given to the
  // constructor.
  int64_t Place(const Life& life, int64_t bytes);
  // Removes all slots, for another order of placement.
  void Clear();

  // The number of intervals that all calls of Place have visited. Together with one look-up for
  // each overlapping life, this is their cost.
  int64_t looked_at() const { return looked_at_; }

 private:
  const std::vector<Life> lives_;         // Distinct and sorted.
  std::vector<std::vector<size_t>> met_;  // By life: the lives that overlap it, itself included.
  std::vector<std::vector<Interval>> taken_;  // By life: disjoint, non-adjacent, sorted.
  int64_t looked_at_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_ALLOCATOR_H_
