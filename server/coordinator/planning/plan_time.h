#ifndef ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TIME_H_
#define ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TIME_H_

#include "absl/time/time.h"
#include "server/coordinator/state/job_plan.h"

namespace annulus {

// Predicted time of MakeJobPlan, within a factor of a few. It sums separately measured times of
// masks, layouts and sizes of groups. The call itself takes almost no time.
absl::Duration PlanTime(const PlanRequest& request);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TIME_H_
