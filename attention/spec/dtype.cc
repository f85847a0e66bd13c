#include "attention/spec/dtype.h"

#include <cstring>

#include "attention/spec/rounding.h"

namespace annulus {
namespace {

inline float OfHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t special = kFp32Infinity | ((magnitude & 0x3ffu) << 13);
  const uint32_t normal = (magnitude << 13) + 0x38000000u;
  const uint32_t subnormal = Bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  uint32_t wide = magnitude < 0x400u ? subnormal : normal;
  wide = magnitude >= 0x7c00u ? special : wide;
  return FromBits(sign | wide);
}

inline float WidenBf16(uint16_t bits) { return FromBits(static_cast<uint32_t>(bits) << 16); }

template <float (*convert)(uint16_t)>
void WidenAll(const std::byte* source, size_t count, float* target) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, source + i * sizeof(bits), sizeof(bits));
    const float value = convert(bits);
    std::memcpy(target + i, &value, sizeof(value));
  }
}

}  // namespace

int BytesPerElement(DataType dtype) {
  switch (dtype) {
    case DataType::kFp32:
      return 4;
    case DataType::kFp16:
    case DataType::kBf16:
      return 2;
    case DataType::kFp8E4m3:
    case DataType::kBits8:
      return 1;
    case DataType::kUnspecified:
      break;
  }
  return 0;
}

absl::string_view DataTypeName(DataType dtype) {
  switch (dtype) {
    case DataType::kFp32:
      return "fp32";
    case DataType::kFp16:
      return "fp16";
    case DataType::kBf16:
      return "bf16";
    case DataType::kFp8E4m3:
      return "fp8-e4m3";
    case DataType::kBits8:
      return "bits";
    case DataType::kUnspecified:
      break;
  }
  return "unspecified";
}

uint16_t Fp32ToFp16(float value) { return HalfOf(value); }
uint16_t Fp32ToBf16(float value) { return NarrowToBf16(value); }
float Fp16ToFp32(uint16_t bits) { return OfHalf(bits); }
float Bf16ToFp32(uint16_t bits) { return WidenBf16(bits); }

void ConvertToFp32(DataType dtype, const std::byte* source, size_t count, float* target) {
  if (dtype == DataType::kFp32 && count > 0) std::memcpy(target, source, count * sizeof(float));
  if (dtype == DataType::kFp16) WidenAll<OfHalf>(source, count, target);
  if (dtype == DataType::kBf16) WidenAll<WidenBf16>(source, count, target);
}

void ConvertFromFp32(DataType dtype, const float* source, size_t count, std::byte* target) {
  RoundAll(dtype, source, count, target);
}

}  // namespace annulus
