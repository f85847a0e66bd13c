#include "attention/validate/validate_pairs.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/limits.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

absl::Status CheckHeads(absl::string_view field, int32_t heads, int32_t q_heads) {
  if (heads == 1 || heads == q_heads) return absl::OkStatus();
  return InvalidField("SHAPE_MISMATCH", field,
                      absl::StrCat("is ", heads, ", but must be 1 or q_heads, ", q_heads));
}

// The gradient is fp32, whatever the dtype of the bias.
absl::Status CheckBiasGradient(const AttentionSpec& spec, int64_t width, const Limits& limits) {
  if (!spec.gradients.d_bias) return absl::OkStatus();
  constexpr char kField[] = "spec.gradients.d_bias";
  if (!spec.modifiers.bias)
    return InvalidField("INVALID_MODIFIER", kField, "needs spec.modifiers.bias");
  return CheckLimit(kField, width, limits.max_pair_bytes / BytesPerElement(DataType::kFp32));
}

}  // namespace

absl::Status CheckPairInputs(const AttentionSpec& spec, const Limits& limits) {
  RETURN_IF_ERROR(CheckHeads("spec.bit_mask_heads", spec.bit_mask_heads, spec.q_heads));
  const BiasAndMaskInputs pairs(spec);
  if (spec.modifiers.bias) {
    RETURN_IF_ERROR(
        CheckHeads("spec.modifiers.bias.heads", spec.modifiers.bias->heads, spec.q_heads));
    const DataType dtype = spec.modifiers.bias->dtype;
    if (dtype > DataType::kBf16) {
      return InvalidField(
          "UNSUPPORTED_DTYPE", "spec.modifiers.bias.dtype",
          absl::StrCat("is ", DataTypeName(dtype), ", but must be fp32, fp16 or bf16"));
    }
    // Elements, not bytes: the number of keys is checked later, so a product could overflow.
    const int64_t element = pairs.has_bias ? BytesPerElement(pairs.bias_dtype) : 1;
    RETURN_IF_ERROR(
        CheckLimit("spec.modifiers.bias", pairs.width, limits.max_pair_bytes / element));
  }
  RETURN_IF_ERROR(CheckBiasGradient(spec, pairs.width, limits));
  const bool asks = std::any_of(spec.masks.begin(), spec.masks.end(),
                                [](const Mask& mask) { return mask.bit_mask; });
  if (!asks && spec.bit_mask_heads != 1) {
    return InvalidField("SHAPE_MISMATCH", "spec.bit_mask_heads",
                        "must be 1, because no mask uses a bit mask");
  }
  return asks ? CheckLimit("spec.masks", pairs.width, limits.max_pair_bytes * 8) : absl::OkStatus();
}

}  // namespace annulus
