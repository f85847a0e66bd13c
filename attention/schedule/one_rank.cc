#include "attention/schedule/builders.h"
#include "attention/schedule/own_rows.h"

namespace annulus {

RankSchedule BuildOneRank(const GroupView& group, int32_t rank) {
  ScheduleWriter writer(group, /*steps=*/1);
  OwnRows own(group, rank, &writer);
  own.AttendOwn(0);
  own.Finish(0);
  return writer.Take();
}

}  // namespace annulus
