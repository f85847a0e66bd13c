#include "attention/schedule/passes/key_pass.h"

#include <utility>
#include <vector>

#include "attention/schedule/model/schedule_writer.h"
#include "attention/schedule/strategies/head_partition.h"

namespace annulus {
namespace {

class KeyPass {
 public:
  KeyPass(const GroupView& group, int32_t rank, const Needs& queries, RankSchedule schedule)
      : group_(group),
        rank_(rank),
        queries_(queries),
        shares_(*group.request.spec, group.degrees),
        inputs_(schedule.inputs),
        writer_(group, std::move(schedule)) {}

  RankSchedule Build() {
    for (const int32_t input : inputs_) AddOwn(input);
    for (const int32_t q : own_queries_) {
      Attend(group_.pass().first, q, {0, writer_.block(q).row_end});
    }
    for (int32_t d = 1; d < group_.world(); ++d) {
      Send(group_.After(rank_, d), StepOf(d));
      Receive(group_.After(rank_, -d), StepOf(d));
    }
    for (const Keys& own : keys_) {
      writer_.Apply(writer_.steps() - 1, Op::Kind::kFinish, own.dkv, own.out);
    }
    return writer_.Take();
  }

 private:
  struct Keys {  // Buffer numbers.
    int32_t kv = 0, dkv = 0, out = 0;
  };

  // Moves one distance per step if the schedule of the keys has as many steps.
  int32_t StepOf(int32_t d) const {
    return group_.pass().first + (writer_.steps() > group_.world() ? d - 1 : 0);
  }

  void AddOwn(int32_t input) {
    Block block = writer_.block(input);
    if (block.kind == BlockKind::kQGrad) own_queries_.push_back(input);
    if (block.kind != BlockKind::kKv) return;
    block.kind = BlockKind::kDkv;
    const int32_t dkv = writer_.AddBuffer(block);
    block.kind = BlockKind::kDkvOut;
    keys_.push_back({input, dkv, writer_.AddOutput(block)});
  }

  void Attend(int32_t step, int32_t q, Interval rows) {
    for (const Keys& own : keys_) {
      const Interval keys{0, writer_.block(own.kv).row_end};
      writer_.Attend(step, {q, own.kv, /*out_q=*/-1, rows, keys, own.dkv});
    }
  }

  void Send(int32_t peer, int32_t step) {
    for (const int32_t q : own_queries_) {
      for (const Interval& rows : queries_.Of(peer, writer_.block(q).shard)) {
        writer_.Send(step, q, rows, peer);
      }
    }
  }

  void Receive(int32_t peer, int32_t step) {
    const int32_t member = peer % group_.degrees.ulysses;
    for (const int32_t shard : queries_.ShardsOf(peer)) {
      for (int32_t to = 0; to < group_.degrees.ulysses; ++to) {
        const Interval heads = shares_.Queries(member, to);
        if (heads.length() > 0) ReceiveHeads(peer, step, shard, heads);
      }
    }
  }

  void ReceiveHeads(int32_t peer, int32_t step, int32_t shard, Interval heads) {
    for (const Interval& rows : queries_.Of(rank_, shard)) {
      const int32_t q =
          writer_.AddBuffer({BlockKind::kQGrad, shard, rows.begin, rows.end,
                             static_cast<int32_t>(heads.begin), static_cast<int32_t>(heads.end)});
      writer_.Receive(step, q, rows, peer);
      Attend(step + 1, q, rows);
    }
  }

  const GroupView& group_;
  const int32_t rank_;
  const Needs& queries_;
  const HeadPartition shares_;  // How ranks that exchange heads split their queries.
  const std::vector<int32_t> inputs_;
  ScheduleWriter writer_;
  std::vector<int32_t> own_queries_;
  std::vector<Keys> keys_;
};

}  // namespace

RankSchedule AddKeyPass(const GroupView& group, int32_t rank, const Needs& queries,
                        RankSchedule schedule) {
  return KeyPass(group, rank, queries, std::move(schedule)).Build();
}

}  // namespace annulus
