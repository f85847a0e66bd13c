#include <cstdint>

#include "attention/schedule/strategies/builders.h"
#include "attention/schedule/strategies/own_rows.h"
#include "attention/schedule/strategies/ring_route.h"

namespace annulus {
namespace {

// Ring pass-Q for one rank: queries travel past its keys. The state that it computes for them goes
// directly home one step later, where the owner joins it to its own. Gradients of keys stay here.
class PassQRank {
 public:
  PassQRank(const GroupView& group, int32_t rank)
      : group_(group),
        rank_(rank),
        first_(group.pass().first),
        writer_(group, first_ + group.world() + 1),
        own_(group, rank, &writer_),
        ring_(RingOfRanks(group.needs, group.world(), rank)) {}

  RankSchedule Build() {
    own_.AttendOwn(first_);
    for (int32_t distance = 0; distance < group_.world(); ++distance) Travel(distance);
    for (int32_t distance = 1; distance < group_.world(); ++distance) ComeHome(distance);
    own_.Finish(writer_.steps() - 1);
    return writer_.Take();
  }

 private:
  void Travel(int32_t distance) {
    const Ring::Timing timing{first_, 1};
    if (distance == 0) {
      for (const OwnRows::Queries& own : own_.queries()) {
        ring_.SendOn(own.shard, 0, {{own.q, own.rows}}, timing, &writer_);
      }
      return;
    }
    for (const int32_t shard : group_.needs.ShardsOf(group_.After(rank_, -distance))) {
      const Block queries{group_.pass().queries, shard, 0, 0, 0, group_.request.spec->q_heads};
      const auto parts = ring_.Receive(queries, distance, timing, &writer_);
      for (const Ring::Part& part : parts) {
        for (const Interval& rows : Clip(ring_.Wanted(shard), part.rows)) {
          Compute(distance, part.buffer, rows);
        }
      }
      ring_.SendOn(shard, distance, parts, timing, &writer_);
    }
  }

  // Computes rows of the queries of the rank at `distance` against all own keys.
  void Compute(int32_t distance, int32_t q, Interval rows) {
    Block block = writer_.block(q);
    block.kind = group_.pass().state;
    block.row_begin = rows.begin;
    block.row_end = rows.end;
    const int32_t state = writer_.AddBuffer(block), step = first_ + distance;
    for (const OwnRows::Keys& keys : own_.keys()) {
      writer_.Attend(step, {q, keys.buffer, state, rows, keys.rows, keys.dkv});
    }
    writer_.SendHome(step + 1, writer_.AddTraveller(step, state), rows,
                     group_.After(rank_, -distance));
  }

  // Receives the states of own queries that the rank at `distance` has computed.
  void ComeHome(int32_t distance) {
    const int32_t from = group_.After(rank_, distance);
    for (const OwnRows::Queries& own : own_.queries()) {
      for (const Interval& rows : group_.needs.Of(from, own.shard)) {
        writer_.ReceiveInto(first_ + distance + 1, own.state, rows, from);
      }
    }
  }

  const GroupView& group_;
  const int32_t rank_, first_;
  ScheduleWriter writer_;
  OwnRows own_;
  const Ring ring_;
};

}  // namespace

RankSchedule BuildRingPassQ(const GroupView& group, int32_t rank) {
  return PassQRank(group, rank).Build();
}

}  // namespace annulus
