#ifndef ANNULUS_CLIENT_CLI_REPORT_H_
#define ANNULUS_CLIENT_CLI_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/jobs.pb.h"
#include "annulus/v1/types.pb.h"
#include "nlohmann/json.hpp"

namespace annulus {

// The exit codes of `annulus`; `annulus --help` and docs/reference/command-line.md list them.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,        // Any other error.
  kExitUsage = 2,         // Wrong command line.
  kExitRefused = 3,       // The request or its input cannot be served and must change.
  kExitTryAgain = 4,      // No service, no room or a lost worker. The same may succeed later.
  kExitDeadline = 5,      // The deadline has passed.
  kExitWrongAnswer = 6,   // --verify found an error, or bytes were corrupted.
  kExitInterrupted = 130  // Ctrl-C.
};
constexpr char kExitCodes[] =
    "Exit codes: 0 done; 1 failed; 2 wrong command line; 3 refused, the request must change; 4 not "
    "now, try again;\n"
    "5 deadline; 6 wrong answer (verification or checksum); 130 interrupted.";

ExitCode ExitCodeOf(const absl::Status& status);

// Prints an error on standard error: one line with code, reason and message, and a line for each
// field that the message does not cover, escaped by base/escape_for_terminal.h. With `json`, also
// prints {"error": {code, reason, message, metadata, fields, retry_after_seconds}} on standard
// output. Returns the exit code.
ExitCode ReportError(const absl::Status& status, bool json);

nlohmann::json ExecutionJson(const v1::Execution& execution);
// For example "ring-pass-kv, zigzag, 4 workers".
std::string ExecutionText(const v1::Execution& execution);
// For a job with a kept_state: {status, expire_time, held_bytes, users}, and "held until …".
nlohmann::json KeptStateJson(const v1::Job& job);
std::string KeptStateText(const v1::Job& job);
// The name of an enum's value without its type, in lower case.
std::string LowerSuffix(absl::string_view name);
// For example "1 row", "2 rows".
std::string CountText(int64_t count, absl::string_view noun);
// For example "1.5 GB", "640 B".
std::string BytesText(double bytes);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_REPORT_H_
