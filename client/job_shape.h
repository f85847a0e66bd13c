#ifndef ANNULUS_CLIENT_JOB_SHAPE_H_
#define ANNULUS_CLIENT_JOB_SHAPE_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "attention/spec.h"
#include "client/safetensors.h"

namespace annulus {

// Shapes as a file or a generator has them, [batch, tokens, heads, dim], or [tokens, heads, dim]
// with no batch.
struct JobShape {
  DataType dtype = DataType::kUnspecified;
  std::optional<int64_t> batch;
  int64_t q_tokens = 0, kv_tokens = 0;  // Of one sequence with a batch, else of all.
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, head_dim_v = 0;
};

// Of q, k and v in a file. INVALID_ARGUMENT: MISSING_TENSOR, SHAPE_MISMATCH, UNSUPPORTED_DTYPE,
// naming the tensor and what it is.
absl::StatusOr<JobShape> ShapeOf(const SafetensorsFile& file);

// INVALID_ARGUMENT / UNSUPPORTED_DTYPE.
absl::StatusOr<DataType> DtypeInFile(const SafetensorInfo& info);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_JOB_SHAPE_H_
