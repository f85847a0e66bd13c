#include "attention/schedule/strategies/builders.h"
#include "attention/schedule/strategies/own_rows.h"

namespace annulus {
namespace {

class GatherRank {
 public:
  GatherRank(const GroupView& group, int32_t rank, bool one_distance_a_step)
      : group_(group),
        rank_(rank),
        one_distance_a_step_(one_distance_a_step),
        writer_(group, StepOf(group.world() - 1) + (group.pass().key_gradients ? 3 : 2)),
        own_(group, rank, &writer_) {}

  RankSchedule Build() {
    const int32_t world = group_.world();
    own_.AttendOwn(group_.pass().first);
    for (int32_t d = 1; d < world; ++d) {
      SendNeeded(group_.After(rank_, d), StepOf(d));
      ReceiveNeeded(group_.After(rank_, -d), StepOf(d));
    }
    if (!group_.pass().key_gradients) {
      own_.Finish(writer_.last_task_step());
      return writer_.Take();
    }
    for (int32_t d = 1; d < world; ++d) ComeHome(group_.After(rank_, d), StepOf(d) + 2);
    own_.Finish(writer_.steps() - 1);
    return writer_.Take();
  }

 private:
  // The step in which keys of the rank at distance d (1 … W − 1) move. The next step uses them, and
  // their gradients go home in the step after that.
  int32_t StepOf(int32_t d) const {
    return group_.pass().first + (one_distance_a_step_ ? d - 1 : 0);
  }

  void SendNeeded(int32_t to, int32_t step) {
    for (const OwnRows::Keys& keys : own_.keys()) {
      for (const Interval& rows : group_.needs.Of(to, keys.shard)) {
        writer_.Send(step, keys.buffer, rows, to);
      }
    }
  }

  // One buffer for each interval, so rows in between take no memory.
  void ReceiveNeeded(int32_t from, int32_t step) {
    for (const int32_t shard : group_.needs.ShardsOf(from)) {
      for (const Interval& rows : group_.needs.Of(rank_, shard)) {
        Block block{BlockKind::kKv, shard, rows.begin, rows.end, 0, group_.request.spec->kv_heads};
        const int32_t buffer = writer_.AddBuffer(block);
        int32_t dkv = -1;
        if (group_.pass().key_gradients) {
          block.kind = BlockKind::kDkv;
          dkv = writer_.AddBuffer(block);
          writer_.SendHome(step + 2, dkv, rows, from);
        }
        writer_.Receive(step, buffer, rows, from);
        own_.Attend(step + 1, buffer, rows, dkv);
      }
    }
  }

  // Receives the gradients of own keys that rank `from` has computed.
  void ComeHome(int32_t from, int32_t step) {
    for (const OwnRows::Keys& keys : own_.keys()) {
      for (const Interval& rows : group_.needs.Of(from, keys.shard)) {
        writer_.ReceiveInto(step, keys.dkv, rows, from);
      }
    }
  }

  const GroupView& group_;
  const int32_t rank_;
  const bool one_distance_a_step_;
  ScheduleWriter writer_;
  OwnRows own_;
};

}  // namespace

RankSchedule BuildRotateKv(const GroupView& group, int32_t rank) {
  return GatherRank(group, rank, /*one_distance_a_step=*/true).Build();
}

RankSchedule BuildAllGatherKv(const GroupView& group, int32_t rank) {
  return GatherRank(group, rank, /*one_distance_a_step=*/false).Build();
}

}  // namespace annulus
