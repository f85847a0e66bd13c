#ifndef ANNULUS_CLIENT_CLI_ALL_JOBS_H_
#define ANNULUS_CLIENT_CLI_ALL_JOBS_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.pb.h"

namespace annulus {

// ListJobs, with a limit for the call.
using ListJobsCall = std::function<absl::StatusOr<v1::ListJobsResponse>(
    const v1::ListJobsRequest& request, absl::Duration limit)>;

// Every page of the jobs that the coordinator knows, newest first, with no next page. Jobs that
// come or go meanwhile may be there or not. Errors of the call, and DEADLINE_EXCEEDED after
// `timeout`.
absl::StatusOr<v1::ListJobsResponse> AllJobs(absl::Duration timeout, const ListJobsCall& call,
                                             const std::function<absl::Time()>& now);

// Leaves of these those that have not ended, or whose state is held, and the first `count` of the
// others. Returns how many are gone.
int KeepLatest(int count, v1::ListJobsResponse* jobs);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ALL_JOBS_H_
