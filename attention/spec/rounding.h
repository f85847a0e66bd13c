#ifndef ANNULUS_ATTENTION_SPEC_ROUNDING_H_
#define ANNULUS_ATTENTION_SPEC_ROUNDING_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attention/spec/dtype.h"

// Rounding of fp32 numbers to nearest, ties to even (attention/spec/dtype.h), without branches, so
// that the compiler vectorises loops. Each source file that includes it gets its own copy, compiled
// for the file's own instruction set. Requires: the thread's vector arithmetic keeps subnormal
// numbers.

namespace annulus {
namespace {

inline uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

constexpr uint32_t kFp32Infinity = 0x7f800000u;

// `magnitude` must be below 2^-14, the smallest normal half. Adding 0.5 puts the last bit of the
// sum at 2^-24, the step of subnormal halves, so the addition itself rounds to nearest even.
inline uint16_t SubnormalHalf(uint32_t magnitude) {
  return static_cast<uint16_t>(Bits(FromBits(magnitude) + 0.5f) - Bits(0.5f));
}

inline uint16_t HalfOf(float value) {
  const uint32_t bits = Bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // The quiet bit keeps a NaN whose payload is shifted out a NaN.
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  // A carry out of the mantissa increments the exponent, up to infinity.
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  const uint32_t normal = (rounded - 0x38000000u) >> 13;
  const uint32_t subnormal = SubnormalHalf(magnitude);
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x47800000u ? 0x7c00u : half;  // 2^16 and above.
  half = magnitude > kFp32Infinity ? nan : half;
  return static_cast<uint16_t>(sign | half);
}

inline uint16_t NarrowToBf16(float value) {
  const uint32_t bits = Bits(value);
  const uint32_t nan = (bits >> 16) | 0x40u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > kFp32Infinity ? nan : rounded);
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

inline void RoundAll(DataType dtype, const float* source, size_t count, std::byte* target) {
  if (dtype == DataType::kFp32 && count > 0) std::memcpy(target, source, count * sizeof(float));
  if (dtype == DataType::kFp16) NarrowAll<HalfOf>(source, count, target);
  if (dtype == DataType::kBf16) NarrowAll<NarrowToBf16>(source, count, target);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_ROUNDING_H_
