#ifndef ANNULUS_CLIENT_CLI_MADE_JOB_H_
#define ANNULUS_CLIENT_CLI_MADE_JOB_H_

#include "absl/status/statusor.h"
#include "client/cli/files/attend_job.h"
#include "client/cli/flags/job_flags.h"

namespace annulus {

// A job with its inputs, read or made. Errors: AttendJob's; INVALID_ARGUMENT / LSE_MISMATCH where
// neither the file nor the spec says the base of the LSE that gradients are made of, and a few rows
// show that it is not e (client/cli/verify/lse_probe.h).
absl::StatusOr<AttendJob> MakeJob(JobRequest request);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_MADE_JOB_H_
