#ifndef ANNULUS_CLIENT_CLI_MADE_JOB_H_
#define ANNULUS_CLIENT_CLI_MADE_JOB_H_

#include "absl/status/statusor.h"
#include "client/cli/files/attend_job.h"
#include "client/cli/flags/job_flags.h"

namespace annulus {

// Makes a job with its inputs, from a file or synthetic. Errors: those of AttendJob;
// INVALID_ARGUMENT / LSE_MISMATCH if neither the file nor the spec gives the base of the LSE for
// gradients, and a check of a few rows shows that it is not e (client/cli/verify/lse_probe.h).
absl::StatusOr<AttendJob> MakeJob(JobRequest request);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_MADE_JOB_H_
