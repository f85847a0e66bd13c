#ifndef ANNULUS_CLIENT_CLI_FILES_STATE_JOB_H_
#define ANNULUS_CLIENT_CLI_FILES_STATE_JOB_H_

#include <optional>

#include "absl/status/statusor.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "client/cli/files/job_shape.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Gradients by the state of a forward job, which says all but the gradients into its outputs.

// The spec of gradients by the state that `job` keeps, as GetJob tells of it. As the service says
// it: NOT_FOUND (STATE_EXPIRED …) where it keeps none, FAILED_PRECONDITION / STATE_NOT_READY where
// it has not succeeded yet.
absl::StatusOr<AttentionSpec> SpecOfState(const v1::Job& job);

// The shape of the job, with a batch where d_out, in `layout` (absent: the usual one), has one.
// INVALID_ARGUMENT: MISSING_TENSOR without d_out, SHAPE_MISMATCH where a batch cannot be.
absl::StatusOr<JobShape> ShapeOfState(const SafetensorsFile& file, const AttentionSpec& spec,
                                      std::optional<TensorLayout> layout = std::nullopt);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_STATE_JOB_H_
