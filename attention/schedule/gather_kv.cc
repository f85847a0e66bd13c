#include "attention/schedule/builders.h"
#include "attention/schedule/own_rows.h"

namespace annulus {
namespace {

// In which step the exchange with the rank at distance d (1 … W − 1) moves; the next one uses it.
struct Timing {
  int32_t steps = 1;
  bool one_distance_a_step = false;
  int32_t Move(int32_t d) const { return one_distance_a_step ? d - 1 : 0; }
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
    own_.AttendOwn(0);
    for (int32_t d = 1; d < world; ++d) {
      SendNeeded((rank_ + d) % world, timing_.Move(d));
      ReceiveNeeded((rank_ - d + world) % world, timing_.Move(d));
    }
    own_.Finish(writer_.last_task_step());
    return writer_.Take();
  }

 private:
  void SendNeeded(int32_t to, int32_t step) {
    for (const OwnRows::Keys& keys : own_.keys()) {
      for (const Interval& rows : group_.needs.Of(to, keys.shard)) {
        writer_.Send(step, keys.buffer, rows, to);
      }
    }
  }

  // A buffer for each interval, so that rows in between cost no memory.
  void ReceiveNeeded(int32_t from, int32_t step) {
    for (const int32_t shard : group_.needs.ShardsOf(from)) {
      for (const Interval& rows : group_.needs.Of(rank_, shard)) {
        const int32_t buffer = writer_.AddBuffer(
            {BlockKind::kKv, shard, rows.begin, rows.end, 0, group_.request.spec->kv_heads});
        writer_.Receive(step, buffer, rows, from);
        own_.Attend(step + 1, buffer, rows);
      }
    }
  }

  const GroupView& group_;
  const int32_t rank_;
  const Timing timing_;
  ScheduleWriter writer_;
  OwnRows own_;
};

}  // namespace

RankSchedule BuildRotateKv(const GroupView& group, int32_t rank) {
  return GatherRank(group, rank, {group.world(), /*one_distance_a_step=*/true}).Build();
}

RankSchedule BuildAllGatherKv(const GroupView& group, int32_t rank) {
  return GatherRank(group, rank, {/*steps=*/2, /*one_distance_a_step=*/false}).Build();
}

}  // namespace annulus
