#ifndef ANNULUS_CLIENT_CLI_FILES_STATE_JOB_H_
#define ANNULUS_CLIENT_CLI_FILES_STATE_JOB_H_

#include <optional>

#include "absl/status/statusor.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "client/cli/files/job_shape.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Gradients jobs with a kept state. The forward job determines everything but d_out and d_lse.

// The gradients spec for the state that `job` (from GetJob) keeps. Errors are those of the service:
// FAILED_PRECONDITION / STATE_NOT_READY if the job has not succeeded yet; NOT_FOUND (STATE_EXPIRED,
// …) if it keeps no state.
absl::StatusOr<AttentionSpec> SpecOfState(const v1::Job& job);

// The shape of the job. It has a batch if d_out, in `layout` (absent: the default), has one.
// INVALID_ARGUMENT: MISSING_TENSOR (no d_out), SHAPE_MISMATCH.
absl::StatusOr<JobShape> ShapeOfState(const SafetensorsFile& file, const AttentionSpec& spec,
                                      std::optional<TensorLayout> layout = std::nullopt);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_STATE_JOB_H_
