#ifndef ANNULUS_CLIENT_CLI_FILES_SHARD_NOTES_H_
#define ANNULUS_CLIENT_CLI_FILES_SHARD_NOTES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/files/shard_tensor.h"
#include "client/cli/files/tensor_layout.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Metadata of shard files: `shard_rank`; `shard_plan`, a digest of the rows of every rank;
// `shard_layout`, "thd" or "hnd". Shapes do not identify a shard, because ranks often have equal
// numbers of rows, and tokens and heads may be equal in number.

void AddShardNotes(const PlanRows& plan, int32_t rank, TensorLayout layout,
                   SafetensorMetadata* metadata);
// Removes them, for a file of whole tensors.
void RemoveShardNotes(SafetensorMetadata* metadata);

// Checks that the notes of `files`, in the order of ranks, fit the plan and the layout. Files
// without notes are accepted. INVALID_ARGUMENT: INVALID_PLAN, INVALID_RANK, SHAPE_MISMATCH, with
// the file's number.
absl::Status CheckShardNotes(const PlanRows& plan, TensorLayout layout,
                             const std::vector<SafetensorsFile>& files);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SHARD_NOTES_H_
