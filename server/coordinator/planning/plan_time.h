#ifndef ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TIME_H_
#define ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TIME_H_

#include "absl/time/time.h"
#include "server/coordinator/state/job_plan.h"

namespace annulus {

// How long MakeJobPlan takes, within a factor of a few: by what was measured of masks, layouts and
// sizes of groups one by one. Takes no time itself.
absl::Duration PlanTime(const PlanRequest& request);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TIME_H_
