#ifndef ANNULUS_CLIENT_CLI_ASK_FIRST_H_
#define ANNULUS_CLIENT_CLI_ASK_FIRST_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/flags/job_flags.h"
#include "client/client.h"

namespace annulus {

// Asks the service by a dry run if it would refuse a job, before its inputs are read or made. Asks
// only for jobs with 16 MiB of inputs or more that use no kept state. Returns the error that the
// job itself would end with at once. OK: the job would be accepted, or it is unknown (no answer
// within `timeout`, or an error that may pass).
absl::Status AskFirst(const ClientOptions& service, const JobRequest& request,
                      absl::Duration timeout);

// True if the same request would be refused again one second later.
bool IsRefusal(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ASK_FIRST_H_
