#ifndef ANNULUS_SERVER_COORDINATOR_JOB_VIEW_H_
#define ANNULUS_SERVER_COORDINATOR_JOB_VIEW_H_

#include "annulus/v1/jobs.pb.h"
#include "annulus/v1/types.pb.h"
#include "server/coordinator/job_plan.h"
#include "server/coordinator/job_table.h"

namespace annulus {

// A plan as clients see it; without endpoints, tickets, attempt and deadline, which a placement
// adds.
v1::Plan PlanView(const JobPlan& plan);

// A job as clients see it. The spec, which may be large, only on request; tickets never.
enum class WithSpec : bool { kNo, kYes };
v1::Job JobView(const JobRecord& job, WithSpec with_spec);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_JOB_VIEW_H_
