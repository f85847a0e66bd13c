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

// The shape of a job's inputs in a file or a generator.
struct JobShape {
  DataType dtype = DataType::kUnspecified;
  TensorLayout layout = TensorLayout::kThd;
  std::optional<int64_t> batch;         // Present if the layout has a batch.
  int64_t q_tokens = 0, kv_tokens = 0;  // Per sequence if there is a batch, else in all.
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, head_dim_v = 0;
};

// The default layout of a tensor: [batch, tokens, heads, dim] for 4 dimensions, else [tokens,
// heads, dim].
TensorLayout UsualLayout(size_t dimensions);

// The shape of q, k and v in a file, in `layout` (absent: the default). INVALID_ARGUMENT:
// MISSING_TENSOR, SHAPE_MISMATCH, UNSUPPORTED_DTYPE, with the tensor and its shape or type.
absl::StatusOr<JobShape> ShapeOf(const SafetensorsFile& file,
                                 std::optional<TensorLayout> layout = std::nullopt);

// The dtype of F32, F16 and BF16. INVALID_ARGUMENT / UNSUPPORTED_DTYPE for others.
absl::StatusOr<DataType> DtypeInFile(const SafetensorInfo& info);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_JOB_SHAPE_H_
