#ifndef ANNULUS_CLIENT_CLI_JOB_OUTCOME_H_
#define ANNULUS_CLIENT_CLI_JOB_OUTCOME_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "attention/spec/spec.h"
#include "client/cli/answer.h"
#include "client/cli/files/attend_job.h"
#include "client/client.h"
#include "nlohmann/json.hpp"

namespace annulus {

// The outcome of a successful `annulus attend` or `annulus gradients`.
struct JobOutcome {
  AttendResult result;
  absl::Duration took;
  std::optional<Verification> verified;
  AttentionSpec sent;  // The spec of the last send.
  std::string handle;  // The job of --handle; empty: none.
  // Why it is unknown if the state of `handle` is released. Empty: no release, or it is known.
  std::string release_unconfirmed;
};

// The fields that docs/reference/command-line.md lists.
nlohmann::json OutcomeJson(const AttendJob& job, const JobOutcome& outcome);
// Prints a summary on standard output.
void PrintOutcome(const AttendJob& job, const JobOutcome& outcome);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_JOB_OUTCOME_H_
