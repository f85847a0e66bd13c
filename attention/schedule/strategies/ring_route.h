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

// Not a strategy: ring-pass-kv is BuildUlyssesRing. A Ring computes the route of blocks round a
// ring of ranks, as one member sees it. Builders use it to write the sends and receives of keys
// (ring-pass-kv, ulysses-ring, double-ring) or queries (ring-pass-q).
//
// A block starts at its owner and travels in ring order to its stops: the members that need some of
// its rows. Members that need none are skipped. A stop receives the rows that it and later stops
// need, one buffer per interval of rows. While it uses them, it sends on the rows that later stops
// need. Distance counts hops in ring direction from the owner.
//
// Example: ring-pass-kv, forward, W = 3 ranks, full mask, Timing{0, 1}. Kr is the key block of rank
// r.
//           rank 0 uses, sends       rank 1 uses, sends       rank 2 uses, sends
//   step 0  K0, K0 to rank 1         K1, K1 to rank 2         K2, K2 to rank 0
//   step 1  K2, K2 to rank 1         K0, K0 to rank 2         K1, K1 to rank 0
//   step 2  K1                       K2                       K0
// In step k rank r uses the block of rank (r − k) mod 3, at distance k; it received the block in
// step k − 1. The two hops of each block are in steps 0 and 1, and step 2 has no transfers.
//
// With a causal mask and the contiguous layout, rank 0 sees only K0, and rank 1 sees K0 and K1.
// Three sends are left. In step 0, K0 goes to rank 1 and K1 to rank 2; in step 1, K0 goes from rank
// 1 to rank 2. If rank 2 needed K0 and rank 1 did not, rank 0 would send K0 directly to rank 2, in
// step 1.
class Ring {
 public:
  struct Member {
    int32_t rank = 0;
    // The ranks whose rows the member needs: their needs, combined.
    std::vector<int32_t> wants_for;
  };
  // When a block moves. It moves to its stop at distance d in `pieces` steps, from step first + (d
  // − 1)·pieces on, with an equal piece of its rows in each.
  struct Timing {
    int32_t first = 0;
    int32_t pieces = 1;
  };
  // Rows of a buffer.
  struct Part {
    int32_t buffer = 0;
    Interval rows;
  };

  // `members` in ring order; `position` is the index of this member. `needs` must outlive this.
  Ring(const Needs& needs, std::vector<Member> members, int32_t position);

  // Local rows of a shard that this member needs.
  RowSet Wanted(int32_t shard) const { return needs_->OfAny(members_[position_].wants_for, shard); }
  // Local rows that this member and all others need. For the member where the block starts.
  RowSet WantedByAll(int32_t shard) const;

  // The other members in the order in which a block meets them that starts `offset` (≤ 0) members
  // from this one.
  std::vector<Member> VisitsFrom(int32_t offset) const;

  // Receives the block `what` (its rows are ignored) at `distance` ≥ 1. Returns its buffers; none
  // if this member is not a stop.
  std::vector<Part> Receive(const Block& what, int32_t distance, const Timing& timing,
                            ScheduleWriter* writer) const;
  // Sends a block of `shard`, held in `parts`, to its next stop, if there is one.
  void SendOn(int32_t shard, int32_t distance, const std::vector<Part>& parts, const Timing& timing,
              ScheduleWriter* writer) const;

  // Calls fn(key buffer, rows, gradient buffer) for the rows of `wanted` in `keys`, cut where one
  // part of `gradients` ends and the next begins. Without gradients, the last argument is -1.
  static void ForEachWanted(const RowSet& wanted, absl::Span<const Part> keys,
                            absl::Span<const Part> gradients,
                            absl::FunctionRef<void(int32_t, Interval, int32_t)> fn);

 private:
  const Member& At(int32_t offset) const;
  bool IsStop(int32_t offset, int32_t shard) const;
  // Rows that the members after this one on the block's route need.
  RowSet Later(int32_t shard, int32_t distance) const;
  // Hops to the next stop, which must exist, and back to the previous one. The start counts as a
  // stop.
  int32_t HopsOn(int32_t shard) const;
  int32_t HopsBack(int32_t shard, int32_t distance) const;

  const Needs* needs_;
  std::vector<Member> members_;
  int32_t position_ = 0;
  // The ranks that the members after this one need rows for, in order.
  std::vector<int32_t> after_;
  // [k]: the number of entries of after_ for the nearest k members.
  std::vector<size_t> after_end_;
};

// The ring of all ranks of a group in rank order. Each needs rows for itself.
Ring RingOfRanks(const Needs& needs, int32_t world, int32_t rank);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_RING_ROUTE_H_
