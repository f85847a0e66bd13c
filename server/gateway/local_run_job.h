#ifndef ANNULUS_SERVER_GATEWAY_LOCAL_RUN_JOB_H_
#define ANNULUS_SERVER_GATEWAY_LOCAL_RUN_JOB_H_

#include "client/session/run_job_call.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/services/coordinator_loop.h"

namespace annulus {

// RunJob at the coordinator of this process, without messages in between. Validation, principal,
// events and ends are those of a call of annulus.v1.Jobs. Handlers run concurrently with the
// coordinator loop's events, on threads that post to it. The coordinator loop outlives the calls,
// and ends them when it stops.
RunJobStarter LocalRunJob(CoordinatorLoop* loop, const CoordinatorOptions& options);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_LOCAL_RUN_JOB_H_
