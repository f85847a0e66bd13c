#include "client/cli/verify/bias_and_mask_rows.h"

#include <cstring>
#include <limits>

#include "attention/spec/dtype.h"

namespace annulus {

BiasAndMaskRows::BiasAndMaskRows(const AttentionSpec& spec, const MaskMap& mask,
                                 const Tensors& tensors)
    : spec_(spec), mask_(mask), pairs_(spec), tensors_(tensors) {}

float BiasAndMaskRows::BiasAt(int32_t head, int64_t row, int64_t key) const {
  const int64_t sequence = mask_.SequenceOfQuery(row), column = key - mask_.KeyBegin(sequence);
  const auto of = [&](int32_t heads) { return row * heads + (heads == 1 ? 0 : head); };
  if (pairs_.has_bits && mask_.HasBits(head, sequence)) {
    const std::byte* bits = tensors_.bit_mask + of(pairs_.bit_heads) * pairs_.bit_bytes();
    if ((bits[column / 8] >> column % 8 & std::byte{1}) == std::byte{0}) {
      return -std::numeric_limits<float>::infinity();
    }
  }
  if (!pairs_.has_bias) return 0;
  float bias = 0;
  ConvertToFp32(pairs_.bias_dtype,
                tensors_.bias + of(pairs_.bias_heads) * pairs_.bias_bytes() +
                    column * BytesPerElement(pairs_.bias_dtype),
                1, &bias);
  return bias;
}

double BiasAndMaskRows::OffsetOf(int32_t head, int64_t row) const {
  if (!pairs_.has_offset) return 0;
  float offset = 0;
  std::memcpy(&offset, tensors_.lse_offset + (row * spec_.q_heads + head) * sizeof(float),
              sizeof(offset));
  return offset;
}

}  // namespace annulus
