#include "attention/schedule/strategies/builders.h"
#include "attention/schedule/strategies/own_rows.h"

namespace annulus {

RankSchedule BuildOneRank(const GroupView& group, int32_t rank) {
  const int32_t only = group.pass().first;
  ScheduleWriter writer(group, only + 1);
  OwnRows own(group, rank, &writer);
  own.AttendOwn(only);
  own.Finish(only);
  return writer.Take();
}

}  // namespace annulus
