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

// The result of a successful --verify.
struct Verification {
  uint64_t seed = 0;  // Selected the rows.
  // One of these is set, by the job's operation.
  std::optional<VerifyReport> report;
  std::optional<GradientReport> gradients;
};

// The number of rows to recompute, and whether partials travelled in bf16 (a larger error budget).
struct VerifyOptions {
  int64_t rows = 0;
  bool bf16_partials = false;
};

// Finishes a job that has succeeded: recomputes `verify.rows` rows (0: none), then writes the
// outputs to `file` (null: not). Errors, after which no file has the final name: those of
// AttendJob::CheckInputs(); DATA_LOSS / RESULT_VERIFICATION_FAILED if the answer exceeds the error
// budget; INVALID_ARGUMENT / LSE_MISMATCH or OUTPUT_MISMATCH if a gradients job was given the LSE
// or output of another job; those of SafetensorsWriter::Commit().
absl::StatusOr<std::optional<Verification>> TakeAnswer(const AttendJob& job,
                                                       const VerifyOptions& verify,
                                                       SafetensorsWriter* file);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ANSWER_H_
