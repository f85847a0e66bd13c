#ifndef ANNULUS_ATTENTION_SPEC_BIAS_AND_MASK_INPUTS_H_
#define ANNULUS_ATTENTION_SPEC_BIAS_AND_MASK_INPUTS_H_

#include <cstddef>
#include <cstdint>

#include "attention/spec/spec.h"

namespace annulus {

// The inputs of a job that change scores. A bias and a bit mask say something of each pair of a
// query row and a key row of its sequence: tensors of query rows, whose columns are the keys of the
// row's own sequence, as many as the longest sequence has; what lies past a sequence's keys is not
// read. An offset of the LSE is one number of each row and query head.
struct BiasAndMaskInputs {
  // `spec` need not be valid: no number here overflows.
  explicit BiasAndMaskInputs(const AttentionSpec& spec);

  bool any() const { return has_bias || has_bits || has_offset; }
  // Heads of either: 1 stands for all query heads.
  bool per_head() const {
    return has_offset || (has_bias && bias_heads != 1) || (has_bits && bit_heads != 1);
  }
  // Bytes of one head of one row. Bits: key j is bit j % 8, the lowest first, of byte j / 8; 1
  // means visible.
  int64_t bias_bytes() const { return width * BytesPerElement(bias_dtype); }
  int64_t bit_bytes() const { return (width + 7) / 8; }

  int64_t width = 0;  // Keys of the longest sequence; without one there are no such inputs.
  bool has_bias = false, has_bits = false, has_offset = false;
  bool d_bias = false;  // The gradient of the bias, in fp32, is an output of the job.
  DataType bias_dtype = DataType::kUnspecified;
  int32_t bias_heads = 1, bit_heads = 1;
};

// Packs `count` values, not 0 for visible, as one row and head of a bit mask.
void PackBits(const std::byte* visible, int64_t count, std::byte* bits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_BIAS_AND_MASK_INPUTS_H_
