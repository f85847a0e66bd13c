#ifndef ANNULUS_WORKER_EXECUTOR_STAGING_COPIES_H_
#define ANNULUS_WORKER_EXECUTOR_STAGING_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/executor/program.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Host memory of one rank's tensors. Each is planar, [rows, heads, dim], with rows in the shard's
// own order. The shards of a rank follow one another by shard number. Indexed like
// TensorTable(spec). nullptr if the rank has no rows of the tensor.
struct StagedTensors {
  std::vector<std::byte*> data;
};

// The stop token is checked after each piece of this size.
inline constexpr int64_t kCopyPieceBytes = int64_t{64} << 20;

// Splits `copy` into runs of whole rows, at most `most` bytes or one row each, and calls fn for
// each in order. Stops at the first error and returns it. Does not call fn if `copy` has no rows.
absl::Status ForEachPiece(const Copy2d& copy, int64_t most,
                          absl::FunctionRef<absl::Status(const Copy2d& piece)> fn);

// Section addresses of the buffers that stay in staging, indexed by buffer. Errors:
// INVALID_ARGUMENT and UNIMPLEMENTED, as for the copies below.
absl::StatusOr<std::vector<SectionPlaces>> PlacesInStaging(const RankProgram& program,
                                                           const StagedTensors& staged);

// CopyInputs and CopyOutputs queue the copies between staging and a program's buffers in `arena`.
// They skip buffers that stay in staging. Planar tensors become the sections of block rows
// (attention/schedule/model/block_layout.h), with K and V interleaved, and back. Each piece counts
// as progress. CANCELLED: the stop token is set. INVALID_ARGUMENT: `staged` does not fit the spec.
// UNIMPLEMENTED: a block kind has no tensor.
absl::Status CopyInputs(const RankProgram& program, const StagedTensors& staged, std::byte* arena,
                        Device& device, const KernelControl& control);
absl::Status CopyOutputs(const RankProgram& program, const StagedTensors& staged, std::byte* arena,
                         Device& device, const KernelControl& control);

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_STAGING_COPIES_H_
