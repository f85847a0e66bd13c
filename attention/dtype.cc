#include "attention/dtype.h"

#include <cstring>

namespace annulus {
namespace {

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

constexpr uint32_t kFp32Infinity = 0x7f800000u;

// `magnitude` is below the smallest normal half, 2^-14. Adding 0.5 puts the last bit of the sum at
// 2^-24, the step of subnormal halves, so that the addition itself rounds to nearest even.
uint16_t SubnormalHalf(uint32_t magnitude) {
  return static_cast<uint16_t>(Bits(FromBits(magnitude) + 0.5f) - Bits(0.5f));
}

// The four conversions without a branch, so that loops over them become vector code.

inline uint16_t HalfOf(float value) {
  const uint32_t bits = Bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // The quiet bit keeps a NaN whose payload is shifted out a NaN.
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  // A carry out of the mantissa moves to the next exponent, up to infinity.
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  const uint32_t normal = (rounded - 0x38000000u) >> 13;
  const uint32_t subnormal = SubnormalHalf(magnitude);
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x47800000u ? 0x7c00u : half;  // 2^16 and above
  half = magnitude > kFp32Infinity ? nan : half;
  return static_cast<uint16_t>(sign | half);
}

inline uint16_t BrainOf(float value) {
  const uint32_t bits = Bits(value);
  const uint32_t nan = (bits >> 16) | 0x40u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > kFp32Infinity ? nan : rounded);
}

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

inline float OfBrain(uint16_t bits) { return FromBits(static_cast<uint32_t>(bits) << 16); }

template <float (*convert)(uint16_t)>
void WidenAll(const std::byte* source, size_t count, float* target) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, source + i * sizeof(bits), sizeof(bits));
    const float value = convert(bits);
    std::memcpy(target + i, &value, sizeof(value));
  }
}

template <uint16_t (*convert)(float)>
void NarrowAll(const float* source, size_t count, std::byte* target) {
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, source + i, sizeof(value));
    const uint16_t bits = convert(value);
    std::memcpy(target + i * sizeof(bits), &bits, sizeof(bits));
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
uint16_t Fp32ToBf16(float value) { return BrainOf(value); }
float Fp16ToFp32(uint16_t bits) { return OfHalf(bits); }
float Bf16ToFp32(uint16_t bits) { return OfBrain(bits); }

void ConvertToFp32(DataType dtype, const std::byte* source, size_t count, float* target) {
  if (dtype == DataType::kFp32 && count > 0) std::memcpy(target, source, count * sizeof(float));
  if (dtype == DataType::kFp16) WidenAll<OfHalf>(source, count, target);
  if (dtype == DataType::kBf16) WidenAll<OfBrain>(source, count, target);
}

void ConvertFromFp32(DataType dtype, const float* source, size_t count, std::byte* target) {
  if (dtype == DataType::kFp32 && count > 0) std::memcpy(target, source, count * sizeof(float));
  if (dtype == DataType::kFp16) NarrowAll<HalfOf>(source, count, target);
  if (dtype == DataType::kBf16) NarrowAll<BrainOf>(source, count, target);
}

}  // namespace annulus
