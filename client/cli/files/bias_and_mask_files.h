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

// The tensors `bias` (F32, F16 or BF16) and `mask` (BOOL or U8; 0 hides) of an input file, shaped
// as [batch, heads, q tokens, keys], with [tokens, heads, dim] inputs [heads, q tokens, keys of the
// longest sequence]. Each extent but the last may be 1, which stands for all; leading ones may be
// absent.

// "bias" or "mask"; empty for any other tensor.
absl::string_view PairNameInFile(TensorId id);

// What a spec leaves out and a file says: that there is a bias, its dtype and heads, that there is
// an lse_offset ([.., heads, tokens], F32), and that all masks have a bit mask, and its heads;
// heads that no mask is for get one that is nothing else, at the end of the first group. A spec in
// which some mask asks for the bit mask is left as it is. INVALID_ARGUMENT / UNSUPPORTED_DTYPE.
absl::Status TakeBiasAndMaskInputs(const SafetensorsFile& file, v1::AttentionSpec* spec);

// Sizes of what a file holds.
struct PairExtents {
  std::optional<int64_t> batch;
  int64_t q_tokens = 0;  // Of one sequence with a batch, else of all.
  int64_t keys = 0;      // Of the longest sequence.
};

// Writes a bias or a bit mask as the wire has it, all rows of the job, to `target`.
// INVALID_ARGUMENT: SHAPE_MISMATCH, UNSUPPORTED_DTYPE.
absl::Status ReadBiasOrMaskInput(const SafetensorsFile& file, const TensorInfo& tensor,
                                 const PairExtents& extents, std::byte* target);

// A tensor of an output file.
struct FileTensor {
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// d_bias, all rows of the job as the wire has them, as the gradient of a bias that has `shape` in
// its file (empty: the whole one) and `dtype`: what one number stands for is summed in fp64, in the
// order of the rows, and rounded once.
FileTensor BiasGradientForFile(std::vector<int64_t> shape, DataType dtype, const TensorInfo& tensor,
                               const PairExtents& extents, const std::byte* rows);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_BIAS_AND_MASK_FILES_H_
