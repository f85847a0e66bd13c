#ifndef ANNULUS_SERVER_COORDINATOR_JOB_VIEW_H_
#define ANNULUS_SERVER_COORDINATOR_JOB_VIEW_H_

#include <string>

#include "annulus/v1/jobs.pb.h"
#include "annulus/v1/types.pb.h"
#include "attention/planning/choose_execution.h"
#include "server/coordinator/state/job_plan.h"
#include "server/coordinator/state/job_table.h"

namespace annulus {

// Text for the log, for example "ring-pass-kv, zigzag, 2 workers: 3.1 ms, at most 4194304 bytes a
// worker". For an execution that a bound has ruled out, only its time.
std::string WayText(const Execution& execution, const Cost& cost);
// "rejected WAY: REASON".
std::string RejectedText(const Candidate& candidate);

// A plan as clients see it, without endpoints, tickets, attempt and deadline. A placement adds
// these.
v1::Plan PlanView(const JobPlan& plan);

// A job as clients see it, never with tickets. Events leave out the plan, which `placed` sends
// once. Lists leave out the spec. Both may be large.
enum class JobDetail : char { kEvent, kListed, kFull };
v1::Job JobView(const JobRecord& job, JobDetail detail);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_JOB_VIEW_H_
