#include "attention/schedule/builders.h"
#include "attention/schedule/rank_builder.h"

namespace annulus {

RankSchedule BuildOneRank(const ScheduleRequest& request, const Needs& needs, int32_t rank) {
  RankBuilder builder(request, needs.ShardsOf(rank), /*steps=*/1);
  builder.AttendOwn(0);
  return builder.Build();
}

}  // namespace annulus
