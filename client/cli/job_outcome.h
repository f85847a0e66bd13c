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

// What has become of a job of `annulus attend` or `annulus gradients` that has ended well.
struct JobOutcome {
  AttendResult result;
  absl::Duration took;
  std::optional<Verification> verified;
  AttentionSpec sent;               // As it was sent last.
  std::string handle;               // Of the state that was asked for.
  std::string release_unconfirmed;  // Why it is not known whether that is released; else empty.
};

// As docs/reference/command-line.md lists it.
nlohmann::json OutcomeJson(const AttendJob& job, const JobOutcome& outcome);
// For people, on standard output.
void PrintOutcome(const AttendJob& job, const JobOutcome& outcome);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_JOB_OUTCOME_H_
