#include "attention/spec/bias_and_mask_inputs.h"

#include <algorithm>

namespace annulus {

BiasAndMaskInputs::BiasAndMaskInputs(const AttentionSpec& spec) {
  const bool bits = std::any_of(spec.masks.begin(), spec.masks.end(),
                                [](const Mask& mask) { return mask.bit_mask; });
  if (!bits && !spec.modifiers.bias && !spec.modifiers.lse_offset) return;
  for (const Sequence& sequence : spec.sequences) width = std::max(width, sequence.kv_len);
  if (width == 0) return;
  has_bits = bits;
  has_offset = spec.modifiers.lse_offset;
  bit_heads = spec.bit_mask_heads;
  has_bias = spec.modifiers.bias.has_value();
  if (!has_bias) return;
  d_bias = spec.operation == Operation::kGradients && spec.gradients.d_bias;
  bias_heads = spec.modifiers.bias->heads;
  bias_dtype = spec.bias_dtype();
}

void PackBits(const std::byte* visible, int64_t count, std::byte* bits) {
  std::fill_n(bits, (count + 7) / 8, std::byte{0});
  for (int64_t j = 0; j < count; ++j) {
    if (visible[j] != std::byte{0}) bits[j / 8] |= std::byte{1} << j % 8;
  }
}

}  // namespace annulus
