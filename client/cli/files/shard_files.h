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

// Cuts the tensors of files by a plan and joins them again (client/cli/files/shard_tensor.h). A
// tensor's name gives its dimensions:
// - query rows, [tokens, heads, dim]: q, output, d_out, dq
// - key rows, [tokens, heads, dim]: k, v, dk, dv
// - query rows, [heads, tokens]: lse, lse_rest, max_logit, d_lse, lse_offset
//
// Whole tensors may have a leading batch. Other names are refused. A named layout applies to the
// first two groups: whole tensors have its dimensions, shards those of ShardLayout().

// Reads the shards of a plan from the output of `annulus plan --json`. INVALID_ARGUMENT / BAD_PLAN
// with the problem.
absl::StatusOr<v1::Plan> ParsePlan(const std::string& json);

// A tensor that owns its memory.
struct OwnedTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
std::vector<SafetensorView> ViewsOf(const std::vector<OwnedTensor>& tensors);

// The layout of the shards of whole tensors in `layout` (absent: the default). Heads stay before
// tokens, a batch is dropped: kHnd for kHnd and kBhsd, else kThd.
TensorLayout ShardLayout(std::optional<TensorLayout> layout);

// The rows of `rank` in every tensor of a file. INVALID_ARGUMENT, in this order:
// - INVALID_RANK; MISSING_TENSOR (the file has no tensor)
// - UNKNOWN_TENSOR; LSE_MISMATCH (the notes say that lse is [tokens, heads])
// - for each tensor SHAPE_MISMATCH, UNSUPPORTED_DTYPE (elements are not whole bytes)
//
// Then FAILED_PRECONDITION / INPUT_CHANGED.
absl::StatusOr<std::vector<OwnedTensor>> ShardFile(const PlanRows& plan,
                                                   const SafetensorsFile& file, int32_t rank,
                                                   std::optional<TensorLayout> layout = {});

// Joins the shards in `files`, one for each rank in order, all with the same tensors. With `batch`
// above 0 the result has `batch` sequences of equal length, [batch, …]; a named layout must agree.
// INVALID_ARGUMENT, in this order:
// - SHAPE_MISMATCH ("batch": the layout has one, or none)
// - INVALID_RANK (the number of files); those of client/cli/files/shard_notes.h; INPUT_TWICE
// - UNKNOWN_TENSOR, MISSING_TENSOR
// - SHAPE_MISMATCH (rows or dimensions of a rank, types that differ, a batch that does not divide
//   the rows), UNSUPPORTED_DTYPE
//
// Then FAILED_PRECONDITION / INPUT_CHANGED.
absl::StatusOr<std::vector<OwnedTensor>> UnshardFiles(const PlanRows& plan,
                                                      const std::vector<SafetensorsFile>& files,
                                                      int64_t batch,
                                                      std::optional<TensorLayout> layout = {});

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SHARD_FILES_H_
