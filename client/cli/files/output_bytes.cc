#include "client/cli/files/output_bytes.h"

#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/dtype.h"
#include "attention/spec/tensor_table.h"
#include "client/cli/files/bias_and_mask_files.h"

namespace annulus {
namespace {

// d_bias has the shape of the bias in its file, also its extents of 1.
int64_t BytesOfBiasGradient(const AttentionSpec& spec, const TensorInfo& tensor,
                            const SafetensorsFile* input) {
  const BiasAndMaskInputs pairs(spec);
  const int64_t bytes = BytesPerElement(pairs.bias_dtype);
  const SafetensorInfo* const bias =
      input == nullptr ? nullptr : input->Find(PairNameInFile(TensorId::kBias));
  if (bias == nullptr) return RowsOf(tensor, spec) * tensor.heads * pairs.width * bytes;
  return bias->end - bias->begin;
}

}  // namespace

int64_t BytesToWrite(const AttentionSpec& spec, const SafetensorsFile* input) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : TensorTable(spec)) {
    if (tensor.direction != Direction::kOutput) continue;
    if (tensor.id == TensorId::kDSink) {
      // Summed over rows.
      bytes += tensor.heads * BytesPerElement(tensor.dtype);
    } else if (tensor.id == TensorId::kDBias) {
      bytes += BytesOfBiasGradient(spec, tensor, input);
    } else {
      bytes += RowsOf(tensor, spec) * tensor.row_bytes();
    }
  }
  return bytes;
}

}  // namespace annulus
