#include <cstdint>
#include <limits>
#include <vector>

#include "attention/schedule/builders.h"
#include "attention/schedule/rank_builder.h"

namespace annulus {
namespace {

// The ring as one rank sees it. "Distance" is counted from the owner of the keys, in ring
// direction.
class RingRank {
 public:
  RingRank(const ScheduleRequest& request, const Needs& needs, int32_t rank)
      : world_(request.plan->world_size),
        rank_(rank),
        needs_(needs),
        builder_(request, needs.ShardsOf(rank), world_) {}

  RankSchedule Build() {
    builder_.AttendOwn(0);
    // What the ranks after this one see, the nearest k of them: keys at distance d from their
    // owner have W − 1 − d ranks still before them.
    visible_after_.resize(world_);
    for (int32_t k = 1; k < world_; ++k) {
      visible_after_[k] = Union(visible_after_[k - 1], needs_.Visible(RankAt(k)));
    }
    for (int32_t distance = 0; distance < world_; ++distance) {
      for (const int32_t shard : needs_.ShardsOf(RankAt(-distance))) Visit(shard, distance);
    }
    return builder_.Build();
  }

 private:
  struct Piece {
    int32_t buffer = 0;
    Interval rows;
  };

  int32_t RankAt(int32_t offset) const { return (rank_ + offset + world_) % world_; }

  void Visit(int32_t shard, int32_t distance) {
    const RowSet later = needs_.Local(shard, visible_after_[world_ - 1 - distance]);
    std::vector<Piece> pieces;
    if (distance == 0) {
      const int32_t own = builder_.OwnKeys(shard);
      if (own < 0) return;
      pieces.push_back({own, {0, std::numeric_limits<int64_t>::max()}});
    } else {
      const RowSet mine = needs_.Of(rank_, shard);
      if (mine.empty()) return;  // Not a stop: these keys pass by.
      pieces = Take(shard, distance, Union(mine, later), mine);
    }
    SendOn(shard, distance, pieces, later);
  }

  // Receives `carried`, one buffer for each interval, and attends to the part that this rank needs.
  std::vector<Piece> Take(int32_t shard, int32_t distance, const RowSet& carried,
                          const RowSet& mine) {
    const int32_t from = RankAt(-StopBefore(shard, distance));
    std::vector<Piece> pieces;
    for (const Interval& rows : carried) {
      const int32_t buffer = builder_.AddKeys(shard, rows);
      builder_.Receive(distance - 1, buffer, rows, from);
      for (const Interval& used : Clip(mine, rows)) builder_.Attend(distance, buffer, used);
      pieces.push_back({buffer, rows});
    }
    return pieces;
  }

  void SendOn(int32_t shard, int32_t distance, const std::vector<Piece>& pieces,
              const RowSet& later) {
    if (later.empty()) return;
    const int32_t hops = StopAfter(shard);
    for (const Piece& piece : pieces) {
      for (const Interval& rows : Clip(later, piece.rows)) {
        builder_.Send(distance + hops - 1, piece.buffer, rows, RankAt(hops));
      }
    }
  }

  // Hops back to the last stop before this one; the owner is one.
  int32_t StopBefore(int32_t shard, int32_t distance) const {
    int32_t hops = 1;
    while (hops < distance && needs_.Of(RankAt(-hops), shard).empty()) ++hops;
    return hops;
  }

  // Hops on to the next stop; there is one.
  int32_t StopAfter(int32_t shard) const {
    int32_t hops = 1;
    while (needs_.Of(RankAt(hops), shard).empty()) ++hops;
    return hops;
  }

  const int32_t world_, rank_;
  const Needs& needs_;
  RankBuilder builder_;
  std::vector<RowSet> visible_after_;
};

}  // namespace

RankSchedule BuildRingPassKv(const ScheduleRequest& request, const Needs& needs, int32_t rank) {
  return RingRank(request, needs, rank).Build();
}

}  // namespace annulus
