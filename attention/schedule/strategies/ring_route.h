#ifndef ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_RING_ROUTE_H_
#define ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_RING_ROUTE_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "attention/schedule/model/needs.h"
#include "attention/schedule/model/row_set.h"
#include "attention/schedule/model/schedule_writer.h"

namespace annulus {

// A ring as one of its members sees it. A block travels in ring order, from the member where it
// starts to its stops: the members that want some of its rows. A stop receives the rows that it and
// the stops after it want, a buffer for each interval of them, and sends on while it uses them what
// the later ones want. Distance is counted from the start, in ring direction.
class Ring {
 public:
  struct Member {
    int32_t rank = 0;
    std::vector<int32_t> wants_for;  // Ranks: it wants what they do.
  };
  // A block moves to its stop at distance d in steps first + (d − 1)·pieces … first + d·pieces − 1,
  // an equal piece of its rows in each.
  struct Timing {
    int32_t first = 0;
    int32_t pieces = 1;
  };
  // Rows of a buffer.
  struct Part {
    int32_t buffer = 0;
    Interval rows;
  };

  // `needs` must outlive this.
  Ring(const Needs& needs, std::vector<Member> members, int32_t position);

  // Local rows of a shard that this member wants.
  RowSet Wanted(int32_t shard) const { return needs_->OfAny(members_[position_].wants_for, shard); }
  // Those that it and all members after it want, when it is where the block starts.
  RowSet WantedByAll(int32_t shard) const;

  // The members that a block meets, in order, which starts at the one `offset` ≤ 0 from this.
  std::vector<Member> VisitsFrom(int32_t offset) const;

  // Receives a block, which is `what` but for its rows, at `distance` ≥ 1. Nothing where this
  // member is not one of its stops.
  std::vector<Part> Receive(const Block& what, int32_t distance, const Timing& timing,
                            ScheduleWriter* writer) const;
  // Sends a block of `shard`, held in `parts`, to its next stop, where there is one.
  void SendOn(int32_t shard, int32_t distance, const std::vector<Part>& parts, const Timing& timing,
              ScheduleWriter* writer) const;

  // Calls fn(keys, rows, sums) for the rows of `wanted` in `keys`, cut where one of `gradients`
  // ends and the next begins: by the numbers of their buffers; −1 for sums where there are no
  // gradients.
  static void ForEachWanted(const RowSet& wanted, absl::Span<const Part> keys,
                            absl::Span<const Part> gradients,
                            absl::FunctionRef<void(int32_t, Interval, int32_t)> fn);

 private:
  const Member& At(int32_t offset) const;
  bool IsStop(int32_t offset, int32_t shard) const;
  // What the members that a block meets after this one want.
  RowSet Later(int32_t shard, int32_t distance) const;
  // Hops on to the next stop (there is one), and back to the last one (the start counts as one).
  int32_t HopsOn(int32_t shard) const;
  int32_t HopsBack(int32_t shard, int32_t distance) const;

  const Needs* needs_;
  std::vector<Member> members_;
  int32_t position_ = 0;
  std::vector<int32_t> after_;     // The ranks for which the members after this one want, in order.
  std::vector<size_t> after_end_;  // [k]: how many of them are of the nearest k members.
};

// The ring of all ranks of a group, in rank order, in which each wants for itself.
Ring RingOfRanks(const Needs& needs, int32_t world, int32_t rank);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_RING_ROUTE_H_
