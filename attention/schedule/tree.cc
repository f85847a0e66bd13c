#include <cstdint>

#include "attention/schedule/builders.h"
#include "attention/schedule/own_rows.h"

namespace annulus {
namespace {

// A tree of one level: queries go straight to every rank whose keys they see, and what each makes
// of them comes straight back and is joined.
class TreeRank {
 public:
  TreeRank(const GroupView& group, int32_t rank)
      : group_(group), rank_(rank), writer_(group, kSteps), own_(group, rank, &writer_) {}

  RankSchedule Build() {
    own_.AttendOwn(kMove);
    for (int32_t d = 1; d < group_.world(); ++d) {
      Ask(group_.After(rank_, d));
      Answer(group_.After(rank_, -d));
    }
    own_.Finish(kReturn);
    return writer_.Take();
  }

 private:
  static constexpr int32_t kMove = 0, kCompute = 1, kReturn = 2, kSteps = 3;

  // Own queries that `peer` has keys for; what it makes of them arrives two steps later.
  void Ask(int32_t peer) {
    for (const OwnRows::Queries& own : own_.queries()) {
      for (const Interval& rows : group_.needs.Of(peer, own.shard)) {
        writer_.Send(kMove, own.q, rows, peer);
        writer_.ReceiveInto(kReturn, own.state, rows, peer);
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
        writer_.Receive(kMove, q, rows, peer);
        for (const OwnRows::Keys& keys : own_.keys()) {
          writer_.Attend(kCompute, {q, keys.buffer, state, rows, keys.rows});
        }
        writer_.Send(kReturn, state, rows, peer);
      }
    }
  }

  const GroupView& group_;
  const int32_t rank_;
  ScheduleWriter writer_;
  OwnRows own_;
};

}  // namespace

RankSchedule BuildTree(const GroupView& group, int32_t rank) {
  return TreeRank(group, rank).Build();
}

}  // namespace annulus
