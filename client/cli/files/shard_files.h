#ifndef ANNULUS_CLIENT_CLI_FILES_SHARD_FILES_H_
#define ANNULUS_CLIENT_CLI_FILES_SHARD_FILES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/types.pb.h"
#include "client/cli/files/shard_tensor.h"
#include "client/cli/files/tensor_layout.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Tensors in files, cut by a plan and put together again (client/cli/files/shard_tensor.h). Which
// are tokens follows from a tensor's name: q, output, d_out and dq are [tokens, heads, dim] of
// query rows, k, v, dk and dv of key rows, lse, max_logit, d_lse and lse_offset [heads, tokens] of
// query rows; whole files may have [batch, …] of each. Other names are refused. Where a layout is
// named, the first two groups are so in the whole, with a batch or not as it says, and in shards as
// ShardLayout says; the third stays.

// The shards of a plan as `annulus plan --json` says them. INVALID_ARGUMENT / BAD_PLAN with what is
// wrong.
absl::StatusOr<v1::Plan> ParsePlan(const std::string& json);

// Tensors with the memory that is theirs.
struct OwnedTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
std::vector<SafetensorView> ViewsOf(const std::vector<OwnedTensor>& tensors);

// The layout of shards of whole tensors in `layout`; nothing: the usual one. Heads stay before
// tokens, and a batch goes: kHnd of kHnd and kBhsd, else kThd.
TensorLayout ShardLayout(std::optional<TensorLayout> layout);

// A rank's rows of every tensor of a file. INVALID_ARGUMENT naming the tensor: UNKNOWN_TENSOR,
// SHAPE_MISMATCH, UNSUPPORTED_DTYPE (its elements are not whole bytes); MISSING_TENSOR where there
// is none, INVALID_RANK, LSE_MISMATCH where the file says that its lse is [tokens, heads].
// INPUT_CHANGED (SafetensorsFile::CheckUnchanged).
absl::StatusOr<std::vector<OwnedTensor>> ShardFile(const PlanRows& plan,
                                                   const SafetensorsFile& file, int32_t rank,
                                                   std::optional<TensorLayout> layout = {});

// The whole tensors out of one file for each rank, by rank, all with the same tensors. `batch` more
// than 0: in so many sequences of equal length, [batch, …]; a layout that is named says whether
// there is one (SHAPE_MISMATCH, "batch"). INVALID_ARGUMENT naming the tensor:
// UNKNOWN_TENSOR, MISSING_TENSOR, SHAPE_MISMATCH (a rank's rows or dims, types that differ, a batch
// that does not divide the rows); INVALID_RANK for another number of files; INPUT_TWICE;
// INPUT_CHANGED; those of client/cli/files/shard_notes.h.
absl::StatusOr<std::vector<OwnedTensor>> UnshardFiles(const PlanRows& plan,
                                                      const std::vector<SafetensorsFile>& files,
                                                      int64_t batch,
                                                      std::optional<TensorLayout> layout = {});

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SHARD_FILES_H_
