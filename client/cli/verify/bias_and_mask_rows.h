#ifndef ANNULUS_CLIENT_CLI_VERIFY_BIAS_AND_MASK_ROWS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_BIAS_AND_MASK_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/spec.h"

namespace annulus {

// The bias, bit mask and LSE offset of a job for a packed query row and a query head. For
// verifiers.
class BiasAndMaskRows {
 public:
  // Packed. Null: the job has no such tensor.
  struct Tensors {
    const std::byte* bias = nullptr;
    const std::byte* bit_mask = nullptr;
    const std::byte* lse_offset = nullptr;
  };
  // `spec` and `mask` must outlive this object.
  BiasAndMaskRows(const AttentionSpec& spec, const MaskMap& mask, const Tensors& tensors);

  // The bias for a packed key row of the same sequence: −∞ if bias or bit mask hides it, 0 without
  // both.
  float BiasAt(int32_t head, int64_t row, int64_t key) const;
  // False if BiasAt() is 0 for all keys.
  bool HasBias() const { return pairs_.has_bias || pairs_.has_bits; }
  double OffsetOf(int32_t head, int64_t row) const;  // 0 if the job has no offset.

 private:
  const AttentionSpec& spec_;
  const MaskMap& mask_;
  const BiasAndMaskInputs pairs_;
  const Tensors tensors_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_BIAS_AND_MASK_ROWS_H_
