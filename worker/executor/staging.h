#ifndef ANNULUS_WORKER_EXECUTOR_STAGING_H_
#define ANNULUS_WORKER_EXECUTOR_STAGING_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/executor/program.h"

namespace annulus {

// Host memory of one rank's tensors, planar: [rows, heads, dim] each, rows in the shard's own
// order. A rank with several shards has their rows one after another, by shard number. Indexed like
// TensorTable(spec); nullptr where the rank has no rows of the tensor.
struct StagedTensors {
  std::vector<std::byte*> data;
};

// Queues the copies between staging and a program's buffers in `arena`: planar tensors become the
// sections of block rows (attention/block_layout.h), K and V interleaved, and back.
// INVALID_ARGUMENT when `staged` does not fit the spec; UNIMPLEMENTED for a block kind that no
// tensor fills.
absl::Status CopyInputs(const RankProgram& program, const StagedTensors& staged, std::byte* arena,
                        Device& device);
absl::Status CopyOutputs(const RankProgram& program, const StagedTensors& staged, std::byte* arena,
                         Device& device);

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_STAGING_H_
