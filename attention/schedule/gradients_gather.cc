#include <cstdint>
#include <vector>

#include "attention/schedule/builders.h"
#include "attention/schedule/gradient_rows.h"

namespace annulus {
namespace {

// In which step the keys of the rank at distance d (1 … W − 1) move; the next one uses them, and
// in the one after that their gradients go home.
struct Timing {
  int32_t steps = 2;
  bool one_distance_a_step = false;
  int32_t Move(int32_t d) const { return one_distance_a_step ? d : 1; }
};

class GatherRank {
 public:
  GatherRank(const GroupView& group, int32_t rank, const Timing& timing)
      : group_(group),
        rank_(rank),
        timing_(timing),
        writer_(group, timing.steps),
        own_(group, rank, &writer_) {}

  RankSchedule Build() {
    const int32_t world = group_.world();
    own_.Begin(0);
    own_.AttendOwn(1);
    for (int32_t d = 1; d < world; ++d) {
      SendNeeded((rank_ + d) % world, timing_.Move(d));
      ReceiveNeeded((rank_ - d + world) % world, timing_.Move(d));
    }
    for (const Homeward& made : homeward_) writer_.Send(made.step, made.dkv, made.rows, made.peer);
    for (int32_t d = 1; d < world; ++d) ComeHome((rank_ + d) % world, timing_.Move(d) + 2);
    own_.Finish(writer_.steps() - 1);
    return writer_.Take();
  }

 private:
  // Gradients of another rank's keys.
  struct Homeward {
    int32_t step = 0, dkv = 0;
    Interval rows;
    int32_t peer = 0;
  };

  void SendNeeded(int32_t to, int32_t step) {
    for (const GradientRows::Keys& keys : own_.keys()) {
      for (const Interval& rows : group_.needs.Of(to, keys.shard)) {
        writer_.Send(step, keys.buffer, rows, to);
      }
    }
  }

  void ReceiveNeeded(int32_t from, int32_t step) {
    for (const int32_t shard : group_.needs.ShardsOf(from)) {
      for (const Interval& rows : group_.needs.Of(rank_, shard)) {
        Block block{BlockKind::kKv, shard, rows.begin, rows.end, 0, group_.request.spec->kv_heads};
        const int32_t buffer = writer_.AddBuffer(block);
        block.kind = BlockKind::kDkv;
        const int32_t dkv = writer_.AddBuffer(block);
        writer_.Receive(step, buffer, rows, from);
        own_.Attend(step + 1, buffer, rows, dkv);
        homeward_.push_back({step + 2, dkv, rows, from});
      }
    }
  }

  // What rank `from` has made of own keys.
  void ComeHome(int32_t from, int32_t step) {
    for (const GradientRows::Keys& keys : own_.keys()) {
      for (const Interval& rows : group_.needs.Of(from, keys.shard)) {
        Block block = writer_.block(keys.dkv);
        block.row_begin = rows.begin;
        block.row_end = rows.end;
        const int32_t arriving = writer_.AddBuffer(block);
        writer_.Receive(step, arriving, rows, from);
        writer_.Apply(step, Op::Kind::kAdd, arriving, keys.dkv);
      }
    }
  }

  const GroupView& group_;
  const int32_t rank_;
  const Timing timing_;
  ScheduleWriter writer_;
  GradientRows own_;
  std::vector<Homeward> homeward_;
};

}  // namespace

RankSchedule BuildGradientsOneRank(const GroupView& group, int32_t rank) {
  ScheduleWriter writer(group, /*steps=*/2);
  GradientRows own(group, rank, &writer);
  own.Begin(0);
  own.AttendOwn(1);
  own.Finish(1);
  return writer.Take();
}

RankSchedule BuildGradientsRotateKv(const GroupView& group, int32_t rank) {
  return GatherRank(group, rank, {group.world() + 2, /*one_distance_a_step=*/true}).Build();
}

RankSchedule BuildGradientsAllGatherKv(const GroupView& group, int32_t rank) {
  return GatherRank(group, rank, {/*steps=*/4, /*one_distance_a_step=*/false}).Build();
}

}  // namespace annulus
