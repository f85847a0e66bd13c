#ifndef ANNULUS_CLIENT_CLI_ALL_JOBS_H_
#define ANNULUS_CLIENT_CLI_ALL_JOBS_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.pb.h"

namespace annulus {

// ListJobs with a time limit for the call.
using ListJobsCall = std::function<absl::StatusOr<v1::ListJobsResponse>(
    const v1::ListJobsRequest& request, absl::Duration limit)>;

// Reads all pages of the coordinator's jobs, newest first. The result has no next_page_token. Jobs
// that start or end meanwhile may be included or not. Errors: those of the call; DEADLINE_EXCEEDED
// after `timeout`.
absl::StatusOr<v1::ListJobsResponse> AllJobs(absl::Duration timeout, const ListJobsCall& call,
                                             const std::function<absl::Time()>& now);

// Keeps the jobs that have not ended, those whose state is held, and the first `count` of the
// others. Returns the number of jobs removed.
int KeepLatest(int count, v1::ListJobsResponse* jobs);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ALL_JOBS_H_
