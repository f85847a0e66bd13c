#include "attention/schedule/builders.h"
#include "attention/schedule/rank_builder.h"

namespace annulus {
namespace {

// In which step the exchange with the rank at distance d (1 … W − 1) moves; the next one uses it.
struct Timing {
  int32_t steps = 1;
  bool one_distance_a_step = false;
  int32_t Move(int32_t d) const { return one_distance_a_step ? d - 1 : 0; }
};

void SendNeeded(const Needs& needs, int32_t rank, int32_t to, int32_t step, RankBuilder* builder) {
  for (const int32_t shard : needs.ShardsOf(rank)) {
    for (const Interval& rows : needs.Of(to, shard)) {
      builder->Send(step, builder->OwnKeys(shard), rows, to);
    }
  }
}

// A buffer for each interval, so that rows in between cost no memory.
void ReceiveNeeded(const Needs& needs, int32_t rank, int32_t from, int32_t step,
                   RankBuilder* builder) {
  for (const int32_t shard : needs.ShardsOf(from)) {
    for (const Interval& rows : needs.Of(rank, shard)) {
      const int32_t buffer = builder->AddKeys(shard, rows);
      builder->Receive(step, buffer, rows, from);
      builder->Attend(step + 1, buffer, rows);
    }
  }
}

RankSchedule Gather(const ScheduleRequest& request, const Needs& needs, int32_t rank,
                    const Timing& timing) {
  const int32_t world = request.plan->world_size;
  RankBuilder builder(request, needs.ShardsOf(rank), timing.steps);
  builder.AttendOwn(0);
  for (int32_t d = 1; d < world; ++d) {
    SendNeeded(needs, rank, (rank + d) % world, timing.Move(d), &builder);
    ReceiveNeeded(needs, rank, (rank - d + world) % world, timing.Move(d), &builder);
  }
  return builder.Build();
}

}  // namespace

RankSchedule BuildRotateKv(const ScheduleRequest& request, const Needs& needs, int32_t rank) {
  return Gather(request, needs, rank, {request.plan->world_size, /*one_distance_a_step=*/true});
}

RankSchedule BuildAllGatherKv(const ScheduleRequest& request, const Needs& needs, int32_t rank) {
  return Gather(request, needs, rank, {/*steps=*/2, /*one_distance_a_step=*/false});
}

}  // namespace annulus
