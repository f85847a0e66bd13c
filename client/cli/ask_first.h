#ifndef ANNULUS_CLIENT_CLI_ASK_FIRST_H_
#define ANNULUS_CLIENT_CLI_ASK_FIRST_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/flags/job_flags.h"
#include "client/client.h"

namespace annulus {

// The service's refusal of a job, by a dry run, before its inputs are read or made: of one with
// much to read or make that uses no kept state. OK: it would be taken, or nobody knows (no answer
// within `timeout`, or an error that time may cure). Only an error that the job itself would end
// with at once is handed on.
absl::Status AskFirst(const ClientOptions& service, const JobRequest& request,
                      absl::Duration timeout);

// Whether the same request would be refused as well a second later.
bool IsRefusal(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ASK_FIRST_H_
