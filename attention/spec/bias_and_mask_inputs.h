#ifndef ANNULUS_ATTENTION_SPEC_BIAS_AND_MASK_INPUTS_H_
#define ANNULUS_ATTENTION_SPEC_BIAS_AND_MASK_INPUTS_H_

#include <cstddef>
#include <cstdint>

#include "attention/spec/spec.h"

namespace annulus {

// The inputs of a job that change scores: bias, bit mask and LSE offset.
//
// A bias and a bit mask have one value for each pair of a query row and a key row of the same
// sequence. Their tensors have query rows; column j is key j of the row's own sequence. `width`,
// the number of columns, is the number of keys of the longest sequence. Columns past a sequence's
// keys are not read. An LSE offset has one number for each query row and query head.
struct BiasAndMaskInputs {
  // `spec` need not be valid: no computation here overflows.
  explicit BiasAndMaskInputs(const AttentionSpec& spec);

  bool any() const { return has_bias || has_bits || has_offset; }
  // True if an input differs between query heads. A bias or bit mask of 1 head applies to all query
  // heads.
  bool per_head() const {
    return has_offset || (has_bias && bias_heads != 1) || (has_bits && bit_heads != 1);
  }
  // Bytes of one head of one row. In a bit mask, key j is bit j % 8, counted from the lowest, of
  // byte j / 8; 1 means visible.
  int64_t bias_bytes() const { return width * BytesPerElement(bias_dtype); }
  int64_t bit_bytes() const { return (width + 7) / 8; }

  int64_t width = 0;  // Keys of the longest sequence; if 0, the job has no such inputs.
  bool has_bias = false, has_bits = false, has_offset = false;
  bool d_bias = false;  // True if the gradient of the bias, in fp32, is an output.
  DataType bias_dtype = DataType::kUnspecified;
  int32_t bias_heads = 1, bit_heads = 1;
};

// Packs `count` values into one row and head of a bit mask; a value other than 0 means visible.
// Writes (count + 7) / 8 bytes.
void PackBits(const std::byte* visible, int64_t count, std::byte* bits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_BIAS_AND_MASK_INPUTS_H_
