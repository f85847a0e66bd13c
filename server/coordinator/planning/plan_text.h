#ifndef ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TEXT_H_
#define ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TEXT_H_

#include <string>

#include "attention/planning/choose_execution.h"
#include "server/coordinator/state/job_plan.h"

namespace annulus {

// Text for the log, for example "ring-pass-kv, zigzag, 2 workers: 3.1 ms, at most 4194304 bytes a
// worker". For an execution that a bound has ruled out, only its time.
std::string WayText(const Execution& execution, const Cost& cost);
// "rejected WAY: REASON".
std::string RejectedText(const Candidate& candidate);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_PLANNING_PLAN_TEXT_H_
