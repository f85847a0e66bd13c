#ifndef ANNULUS_CLIENT_CLI_FILES_BIAS_AND_MASK_FILES_H_
#define ANNULUS_CLIENT_CLI_FILES_BIAS_AND_MASK_FILES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/types.pb.h"
#include "attention/spec/dtype.h"
#include "attention/spec/tensor_table.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// The input tensors `bias` (F32, F16 or BF16) and `mask` (BOOL or U8; 0 hides) of a file. Shape:
// [batch, heads, q tokens, keys] if the inputs have a batch; else [heads, q tokens, keys of the
// longest sequence]. An extent of 1, except the last one, is broadcast. Leading dimensions may be
// absent.

// "bias" or "mask"; empty for any other tensor.
absl::string_view PairNameInFile(TensorId id);

// Completes a spec from a file:
// - the presence of a bias, its dtype and heads
// - the presence of an lse_offset ([.., heads, tokens], F32)
// - a bit mask for all masks, and its heads. Heads without a mask get one that has only the bit
//   mask, at the end of the first group. Unchanged if a mask of the spec has the bit mask already.
//
// INVALID_ARGUMENT / UNSUPPORTED_DTYPE.
absl::Status TakeBiasAndMaskInputs(const SafetensorsFile& file, v1::AttentionSpec* spec);

// The extents of the tensors in the file.
struct PairExtents {
  std::optional<int64_t> batch;
  int64_t q_tokens = 0;  // Per sequence if there is a batch, else in all.
  int64_t keys = 0;      // The keys of the longest sequence.
};

// Writes the bias or bit mask of all rows of the job to `target`, in the wire format.
// INVALID_ARGUMENT: MISSING_TENSOR, UNSUPPORTED_DTYPE, SHAPE_MISMATCH.
absl::Status ReadBiasOrMaskInput(const SafetensorsFile& file, const TensorInfo& tensor,
                                 const PairExtents& extents, std::byte* target);

// A tensor for an output file.
struct FileTensor {
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// Converts d_bias (all rows of the job, in the wire format) to the gradient of a bias of `shape`
// (its shape in the file; empty: the full shape) and `dtype`. Gradients of a broadcast element are
// summed in fp64 in the order of the rows, and rounded once.
FileTensor BiasGradientForFile(std::vector<int64_t> shape, DataType dtype, const TensorInfo& tensor,
                               const PairExtents& extents, const std::byte* rows);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_BIAS_AND_MASK_FILES_H_
