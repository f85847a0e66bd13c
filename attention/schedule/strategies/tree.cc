#include <cstdint>

#include "attention/schedule/strategies/builders.h"
#include "attention/schedule/strategies/own_rows.h"

namespace annulus {
namespace {

// A tree with one level: queries go directly to every rank whose keys they see, and the states
// computed there come directly back and are joined.
class TreeRank {
 public:
  TreeRank(const GroupView& group, int32_t rank)
      : group_(group),
        rank_(rank),
        move_(group.pass().first),
        writer_(group, move_ + 3),
        own_(group, rank, &writer_) {}

  RankSchedule Build() {
    own_.AttendOwn(move_);
    for (int32_t d = 1; d < group_.world(); ++d) {
      Ask(group_.After(rank_, d));
      Answer(group_.After(rank_, -d));
    }
    own_.Finish(move_ + 2);
    return writer_.Take();
  }

 private:
  // Sends the own queries that `peer` has keys for. Their states arrive two steps later.
  void Ask(int32_t peer) {
    for (const OwnRows::Queries& own : own_.queries()) {
      for (const Interval& rows : group_.needs.Of(peer, own.shard)) {
        writer_.Send(move_, own.q, rows, peer);
        writer_.ReceiveInto(move_ + 2, own.state, rows, peer);
      }
    }
  }

  void Answer(int32_t peer) {
    for (const int32_t shard : group_.needs.ShardsOf(peer)) {
      for (const Interval& rows : group_.needs.Of(rank_, shard)) {
        Block block{group_.pass().queries,       shard, rows.begin, rows.end, 0,
                    group_.request.spec->q_heads};
        const int32_t q = writer_.AddBuffer(block);
        block.kind = group_.pass().state;
        const int32_t state = writer_.AddBuffer(block);
        writer_.Receive(move_, q, rows, peer);
        for (const OwnRows::Keys& keys : own_.keys()) {
          writer_.Attend(move_ + 1, {q, keys.buffer, state, rows, keys.rows, keys.dkv});
        }
        writer_.Send(move_ + 2, writer_.AddTraveller(move_ + 1, state), rows, peer);
      }
    }
  }

  const GroupView& group_;
  const int32_t rank_;
  // Queries move in this step, are computed in the next one, and their states return in the one
  // after.
  const int32_t move_;
  ScheduleWriter writer_;
  OwnRows own_;
};

}  // namespace

RankSchedule BuildTree(const GroupView& group, int32_t rank) {
  return TreeRank(group, rank).Build();
}

}  // namespace annulus
