#ifndef ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_ALLOCATOR_H_
#define ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_ALLOCATOR_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "attention/spec/interval.h"

namespace annulus {

// An arena in which slots lie while they are alive, each at the lowest offset where it touches none
// that came before it and is alive with it. Of many slots few have lives of their own: what is
// taken during a life is kept as intervals, which grow together, so that a slot need not look at
// every other.
class ArenaAllocator {
 public:
  using Life = std::pair<int32_t, int32_t>;  // First and last half-step.

  // The lives of all slots to come, in any order; each as often as it likes.
  explicit ArenaAllocator(std::vector<Life> lives);

  // The offset of the next slot.
  int64_t Place(const Life& life, int64_t bytes);
  void Clear();

  // Intervals that all calls of Place have gone through: beside a look-up for each life that a
  // slot's meets, what they cost.
  int64_t looked_at() const { return looked_at_; }

 private:
  const std::vector<Life> lives_;             // Each once, in order.
  std::vector<std::vector<size_t>> met_;      // By life: those that it meets, itself included.
  std::vector<std::vector<Interval>> taken_;  // By life: disjoint, non-adjacent, in order.
  int64_t looked_at_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_ARENA_ARENA_ALLOCATOR_H_
