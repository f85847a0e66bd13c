#ifndef ANNULUS_CLIENT_CLI_FILES_SHARD_NOTES_H_
#define ANNULUS_CLIENT_CLI_FILES_SHARD_NOTES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/files/shard_tensor.h"
#include "client/cli/files/tensor_layout.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// What shards say of themselves in their metadata, since ranks often have equally many rows, and
// rows as many heads: `shard_rank`, `shard_plan`, a digest of which rows each rank of the plan has,
// and `shard_layout`, "thd" or "hnd".

void AddShardNotes(const PlanRows& plan, int32_t rank, TensorLayout layout,
                   SafetensorMetadata* metadata);
// For a file that is none.
void RemoveShardNotes(SafetensorMetadata* metadata);

// Whether files, by rank, are said to be the shards of the plan, in this layout. One that says
// nothing is taken as it is given. INVALID_ARGUMENT: INVALID_PLAN, INVALID_RANK, SHAPE_MISMATCH,
// naming the file by its number.
absl::Status CheckShardNotes(const PlanRows& plan, TensorLayout layout,
                             const std::vector<SafetensorsFile>& files);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SHARD_NOTES_H_
