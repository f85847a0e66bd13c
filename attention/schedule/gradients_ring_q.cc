#include <cstdint>
#include <utility>
#include <vector>

#include "attention/schedule/builders.h"
#include "attention/schedule/gradient_rows.h"
#include "attention/schedule/ring.h"

namespace annulus {
namespace {

// The backward ring pass-Q as one rank sees it: queries, with all that a backward pass needs of
// them, travel past its keys. Gradients of keys stay here; those that it makes of others' queries
// go straight home one step later.
class PassQRank {
 public:
  PassQRank(const GroupView& group, int32_t rank)
      : group_(group),
        world_(group.world()),
        rank_(rank),
        writer_(group, world_ + 2),
        own_(group, rank, &writer_),
        ring_(MakeRing()) {}

  RankSchedule Build() {
    own_.Begin(0);
    own_.AttendOwn(1);
    for (int32_t distance = 0; distance < world_; ++distance) Travel(distance);
    for (const Homeward& made : homeward_) {
      writer_.Send(made.distance + 2, made.dq, made.rows, RankAt(-made.distance));
    }
    for (int32_t distance = 1; distance < world_; ++distance) ComeHome(distance);
    own_.Finish(writer_.steps() - 1);
    return writer_.Take();
  }

 private:
  // Gradients of the queries of the rank at `distance`.
  struct Homeward {
    int32_t distance = 0, dq = 0;
    Interval rows;
  };

  int32_t RankAt(int32_t offset) const { return (rank_ + offset + world_) % world_; }

  Ring MakeRing() const {
    std::vector<Ring::Member> members;
    for (int32_t r = 0; r < world_; ++r) members.push_back({r, {r}});
    return Ring(group_.needs, std::move(members), rank_);
  }

  void Travel(int32_t distance) {
    const Ring::Timing timing{1, 1};
    if (distance == 0) {
      for (const GradientRows::Queries& own : own_.queries()) {
        ring_.SendOn(own.shard, 0, {{own.q, own.rows}}, timing, &writer_);
      }
      return;
    }
    for (const int32_t shard : group_.needs.ShardsOf(RankAt(-distance))) {
      const Block queries{BlockKind::kQGrad, shard, 0, 0, 0, group_.request.spec->q_heads};
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
    state.kind = BlockKind::kDq;
    state.row_begin = rows.begin;
    state.row_end = rows.end;
    const int32_t dq = writer_.AddBuffer(state);
    for (const GradientRows::Keys& keys : own_.keys()) {
      writer_.Attend(distance + 1, {q, keys.buffer, dq, rows, keys.rows, keys.dkv});
    }
    homeward_.push_back({distance, dq, rows});
  }

  // What the rank at `distance` has made of own queries.
  void ComeHome(int32_t distance) {
    for (const GradientRows::Queries& own : own_.queries()) {
      for (const Interval& rows : group_.needs.Of(RankAt(distance), own.shard)) {
        Block state = writer_.block(own.dq);
        state.row_begin = rows.begin;
        state.row_end = rows.end;
        const int32_t arriving = writer_.AddBuffer(state);
        writer_.Receive(distance + 2, arriving, rows, RankAt(distance));
        writer_.Apply(distance + 2, Op::Kind::kAdd, arriving, own.dq);
      }
    }
  }

  const GroupView& group_;
  const int32_t world_, rank_;
  ScheduleWriter writer_;
  GradientRows own_;
  const Ring ring_;
  std::vector<Homeward> homeward_;
};

}  // namespace

RankSchedule BuildGradientsRingPassQ(const GroupView& group, int32_t rank) {
  return PassQRank(group, rank).Build();
}

}  // namespace annulus
