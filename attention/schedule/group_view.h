#ifndef ANNULUS_ATTENTION_SCHEDULE_GROUP_VIEW_H_
#define ANNULUS_ATTENTION_SCHEDULE_GROUP_VIEW_H_

#include "attention/degrees.h"
#include "attention/schedule/needs.h"
#include "attention/schedule/rectangles.h"
#include "attention/schedule_data.h"

namespace annulus {

// What the schedules of all ranks of a group are made from. Everything in it outlives the builders.
struct GroupView {
  const ScheduleRequest& request;
  Degrees degrees;
  const Needs& needs;  // Of the rows that travel.
  RectangleTable& rectangles;

  int32_t world() const { return request.plan->world_size; }
  const Shard& shard(int32_t index) const { return request.plan->shards[index]; }
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_GROUP_VIEW_H_
