#include <cstdint>
#include <utility>
#include <vector>

#include "attention/schedule/builders.h"
#include "attention/schedule/own_rows.h"
#include "attention/schedule/ring.h"

namespace annulus {
namespace {

// Ring pass-Q as one rank sees it: queries travel past its keys, and the partials that it makes of
// them go straight home one step later, where they merge.
class PassQRank {
 public:
  PassQRank(const GroupView& group, int32_t rank)
      : group_(group),
        world_(group.world()),
        rank_(rank),
        writer_(group, world_ + 1),
        own_(group, rank, &writer_),
        ring_(MakeRing()) {}

  RankSchedule Build() {
    own_.AttendOwn(0);
    for (int32_t distance = 0; distance < world_; ++distance) Travel(distance);
    for (const Homeward& made : homeward_) {
      writer_.Send(made.distance + 1, made.partial, made.rows, RankAt(-made.distance));
    }
    for (int32_t distance = 1; distance < world_; ++distance) ComeHome(distance);
    own_.Finish(writer_.steps() - 1);
    return writer_.Take();
  }

 private:
  // A partial of the queries of the rank at `distance`.
  struct Homeward {
    int32_t distance = 0, partial = 0;
    Interval rows;
  };

  int32_t RankAt(int32_t offset) const { return (rank_ + offset + world_) % world_; }

  Ring MakeRing() const {
    std::vector<Ring::Member> members;
    for (int32_t r = 0; r < world_; ++r) members.push_back({r, {r}});
    return Ring(group_.needs, std::move(members), rank_);
  }

  void Travel(int32_t distance) {
    const Ring::Timing timing{0, 1};
    if (distance == 0) {
      for (const OwnRows::Queries& own : own_.queries()) {
        ring_.SendOn(own.shard, 0, {{own.q, own.rows}}, timing, &writer_);
      }
      return;
    }
    for (const int32_t shard : group_.needs.ShardsOf(RankAt(-distance))) {
      const Block queries{BlockKind::kQ, shard, 0, 0, 0, group_.request.spec->q_heads};
      const auto parts = ring_.Receive(queries, distance, timing, &writer_);
      for (const Ring::Part& part : parts) {
        for (const Interval& rows : Clip(ring_.Wanted(shard), part.rows)) {
          Compute(distance, part.buffer, rows);
        }
      }
      ring_.SendOn(shard, distance, parts, timing, &writer_);
    }
  }

  // Rows of others' queries, against all own keys.
  void Compute(int32_t distance, int32_t q, Interval rows) {
    Block state = writer_.block(q);
    state.kind = BlockKind::kPartial;
    state.row_begin = rows.begin;
    state.row_end = rows.end;
    const int32_t partial = writer_.AddBuffer(state);
    for (const OwnRows::Keys& keys : own_.keys()) {
      writer_.Attend(distance, {q, keys.buffer, partial, rows, keys.rows});
    }
    homeward_.push_back({distance, partial, rows});
  }

  // What the rank at `distance` has made of own queries.
  void ComeHome(int32_t distance) {
    for (const OwnRows::Queries& own : own_.queries()) {
      const RowSet wanted = group_.needs.Of(RankAt(distance), own.shard);
      for (const Interval& rows : wanted) {
        Block state = writer_.block(own.partial);
        state.row_begin = rows.begin;
        state.row_end = rows.end;
        const int32_t arriving = writer_.AddBuffer(state);
        writer_.Receive(distance + 1, arriving, rows, RankAt(distance));
        writer_.Apply(distance + 1, Op::Kind::kMerge, arriving, own.partial);
      }
    }
  }

  const GroupView& group_;
  const int32_t world_, rank_;
  ScheduleWriter writer_;
  OwnRows own_;
  const Ring ring_;
  std::vector<Homeward> homeward_;
};

}  // namespace

RankSchedule BuildRingPassQ(const GroupView& group, int32_t rank) {
  return PassQRank(group, rank).Build();
}

}  // namespace annulus
