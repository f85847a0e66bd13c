#ifndef ANNULUS_CLIENT_CLI_PREPARE_JOB_H_
#define ANNULUS_CLIENT_CLI_PREPARE_JOB_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/files/attend_job.h"
#include "client/cli/flags/job_flags.h"
#include "client/client.h"

namespace annulus {

// Makes a job with its inputs, from a file or synthetic. Errors: those of AttendJob;
// INVALID_ARGUMENT / LSE_MISMATCH if neither the file nor the spec gives the base of the LSE for
// gradients, and a check of a few rows shows that it is not e (client/cli/verify/lse_probe.h).
absl::StatusOr<AttendJob> MakeJob(JobRequest request);

// Asks the service by a dry run if it would refuse a job, before its inputs are read or made. Asks
// only for jobs with 16 MiB of inputs or more that use no kept state. Returns the error that the
// job itself would end with at once. OK: the job would be accepted, or it is unknown (no answer
// within `timeout`, or an error that may pass).
absl::Status AskFirst(const ClientOptions& service, const JobRequest& request,
                      absl::Duration timeout);

// True if the same request would be refused again one second later.
bool IsRefusal(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_PREPARE_JOB_H_
