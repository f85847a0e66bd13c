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

// Host memory of one rank's tensors, planar: [rows, heads, dim] each, rows in the shard's own
// order. A rank with several shards has their rows one after another, by shard number. Indexed like
// TensorTable(spec); nullptr where the rank has no rows of the tensor.
struct StagedTensors {
  std::vector<std::byte*> data;
};

// So much is copied between two looks at the control.
inline constexpr int64_t kCopyPieceBytes = int64_t{64} << 20;

// Calls fn for pieces of `copy`, runs of its rows one after the other of at most `most` bytes or of
// one row, until it fails. Nothing for a copy without rows.
absl::Status ForEachPiece(const Copy2d& copy, int64_t most,
                          absl::FunctionRef<absl::Status(const Copy2d& piece)> fn);

// Where the sections of those buffers lie that stay in staging, by buffer. Of the errors below the
// last two.
absl::StatusOr<std::vector<SectionPlaces>> PlacesInStaging(const RankProgram& program,
                                                           const StagedTensors& staged);

// Queues the copies between staging and a program's buffers in `arena`, but for those that stay:
// planar tensors become the sections of block rows (attention/schedule/model/block_layout.h), K and
// V interleaved, and back. Each piece counts as progress. CANCELLED when told to stop;
// INVALID_ARGUMENT when `staged` does not fit the spec; UNIMPLEMENTED for a block kind that no
// tensor fills.
absl::Status CopyInputs(const RankProgram& program, const StagedTensors& staged, std::byte* arena,
                        Device& device, const KernelControl& control);
absl::Status CopyOutputs(const RankProgram& program, const StagedTensors& staged, std::byte* arena,
                         Device& device, const KernelControl& control);

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_STAGING_COPIES_H_
