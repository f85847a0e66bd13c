#ifndef ANNULUS_ATTENTION_SPEC_DTYPE_H_
#define ANNULUS_ATTENTION_SPEC_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace annulus {

// Element types of tensors. Little-endian in memory and on the wire.
enum class DataType : uint8_t {
  kUnspecified = 0,
  kFp32 = 1,
  kFp16 = 2,
  kBf16 = 3,
  kFp8E4m3 = 4,
  kBits8 = 255,  // Eight bits of a bit mask; requests cannot name it.
};

// How numbers are multiplied. kOfType: as usual for the dtype. kBf16x3: each fp32 number is split
// into two bf16 parts (docs/reference/numerics.md, "bf16x3").
enum class Arithmetic : uint8_t { kOfType = 0, kBf16x3 = 1 };

// Bytes of one element; 0 for kUnspecified.
int BytesPerElement(DataType dtype);

// "fp32", "fp16", "bf16", "fp8-e4m3", "bits", "unspecified".
absl::string_view DataTypeName(DataType dtype);

// Conversions with correct rounding (to nearest, ties to even). NaN stays NaN, infinities and
// subnormals are kept, and values above the largest finite one become infinite.
uint16_t Fp32ToFp16(float value);
uint16_t Fp32ToBf16(float value);
float Fp16ToFp32(uint16_t bits);
float Bf16ToFp32(uint16_t bits);

// Converts `count` elements. `dtype` must be fp32, fp16 or bf16. Source and target must not overlap
// and need no alignment.
void ConvertToFp32(DataType dtype, const std::byte* source, size_t count, float* target);
void ConvertFromFp32(DataType dtype, const float* source, size_t count, std::byte* target);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_DTYPE_H_
