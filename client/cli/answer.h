#ifndef ANNULUS_CLIENT_CLI_ANSWER_H_
#define ANNULUS_CLIENT_CLI_ANSWER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "client/cli/files/attend_job.h"
#include "client/cli/safetensors/safetensors.h"
#include "client/cli/verify/verify.h"
#include "client/cli/verify/verify_gradients.h"

namespace annulus {

// What --verify found: nothing wrong.
struct Verification {
  uint64_t seed = 0;  // Picked the rows.
  // One of them, by the job's operation.
  std::optional<VerifyReport> report;
  std::optional<GradientReport> gradients;
};

// What of an answer is recomputed: so many rows, judged as the job's execution says.
struct VerifyOptions {
  int64_t rows = 0;
  bool bf16_partials = false;
};

// Takes the answer of a job that has ended well. With `verify.rows` so many rows of it are
// recomputed first; with `file` it is then written. DATA_LOSS / RESULT_VERIFICATION_FAILED where it
// breaches the error budget, INVALID_ARGUMENT / LSE_MISMATCH or OUTPUT_MISMATCH where gradients
// were given the LSE or the output of another job: then no file is left under the name. Errors of
// SafetensorsWriter::Commit.
absl::StatusOr<std::optional<Verification>> TakeAnswer(const AttendJob& job,
                                                       const VerifyOptions& verify,
                                                       SafetensorsWriter* file);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ANSWER_H_
