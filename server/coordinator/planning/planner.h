#ifndef ANNULUS_SERVER_COORDINATOR_PLANNING_PLANNER_H_
#define ANNULUS_SERVER_COORDINATOR_PLANNING_PLANNER_H_

#include "server/coordinator/state/job_plan.h"

namespace annulus {

// Chooses the execution and makes the shard plan. Pure function. FAILED_PRECONDITION /
// INSUFFICIENT_WORKERS or INSUFFICIENT_CAPACITY if no execution is possible with these sizes and
// budgets.
PlanResult MakeJobPlan(const PlanRequest& request);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_PLANNING_PLANNER_H_
