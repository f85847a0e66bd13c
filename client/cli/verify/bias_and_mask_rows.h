#ifndef ANNULUS_CLIENT_CLI_VERIFY_BIAS_AND_MASK_ROWS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_BIAS_AND_MASK_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/spec.h"

namespace annulus {

// What the bias, the bit mask and the offset of a job say of a packed query row and a query head:
// for verifiers.
class BiasAndMaskRows {
 public:
  struct Tensors {  // Packed; nullptr for what the job has not.
    const std::byte* bias = nullptr;
    const std::byte* bit_mask = nullptr;
    const std::byte* lse_offset = nullptr;
  };
  // `spec` and `mask` must outlive this.
  BiasAndMaskRows(const AttentionSpec& spec, const MaskMap& mask, const Tensors& tensors);

  // Of a packed key row of the row's sequence; −∞ where bias or bit mask hides it, 0 with neither.
  float BiasAt(int32_t head, int64_t row, int64_t key) const;
  // Whether any key has one that is not 0.
  bool HasBias() const { return pairs_.has_bias || pairs_.has_bits; }
  double OffsetOf(int32_t head, int64_t row) const;  // 0: none.

 private:
  const AttentionSpec& spec_;
  const MaskMap& mask_;
  const BiasAndMaskInputs pairs_;
  const Tensors tensors_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_BIAS_AND_MASK_ROWS_H_
