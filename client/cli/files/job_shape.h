#ifndef ANNULUS_CLIENT_CLI_FILES_JOB_SHAPE_H_
#define ANNULUS_CLIENT_CLI_FILES_JOB_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "attention/spec/spec.h"
#include "client/cli/files/tensor_layout.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Shapes as a file or a generator has them.
struct JobShape {
  DataType dtype = DataType::kUnspecified;
  TensorLayout layout = TensorLayout::kThd;
  std::optional<int64_t> batch;         // Where the layout has one.
  int64_t q_tokens = 0, kv_tokens = 0;  // Of one sequence with a batch, else of all.
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, head_dim_v = 0;
};

// The layout of a tensor of so many dimensions where nobody says it: [tokens, heads, dim] or
// [batch, tokens, heads, dim].
TensorLayout UsualLayout(size_t dimensions);

// Of q, k and v in a file, in `layout` (absent: the usual one). INVALID_ARGUMENT: MISSING_TENSOR,
// SHAPE_MISMATCH, UNSUPPORTED_DTYPE, naming the tensor and what it is.
absl::StatusOr<JobShape> ShapeOf(const SafetensorsFile& file,
                                 std::optional<TensorLayout> layout = std::nullopt);

// INVALID_ARGUMENT / UNSUPPORTED_DTYPE.
absl::StatusOr<DataType> DtypeInFile(const SafetensorInfo& info);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_JOB_SHAPE_H_
