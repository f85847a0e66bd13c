#include "attention/spec/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace annulus {
namespace {

// A 16-bit format described by its fields, decoded and encoded in doubles, without code of the
// product.
struct Format {
  int mantissa_bits;
  int bias;
  int max_exponent;  // The exponent field of all ones.
};
constexpr Format kHalf{10, 15, 31};
constexpr Format kBf16{7, 127, 255};

double Decode(const Format& format, uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == format.max_exponent) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const double one = std::ldexp(1.0, format.mantissa_bits);
  const double value = exponent == 0 ? mantissa : mantissa + one;
  const int power = std::max(exponent, 1) - format.bias - format.mantissa_bits;
  return sign * std::ldexp(value, power);
}

// The nearest of the two neighbours, found by stepping through the positive numbers of the format.
uint16_t NearestPositive(const Format& format, double value) {
  int low = 0, high = format.max_exponent << format.mantissa_bits;  // high is infinity.
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (Decode(format, static_cast<uint16_t>(middle)) <= value ? low : high) = middle;
  }
  const double below = Decode(format, static_cast<uint16_t>(low));
  double above = Decode(format, static_cast<uint16_t>(high));
  if (std::isinf(above)) {  // The number that would follow the largest finite one.
    above = 2 * below - Decode(format, static_cast<uint16_t>(low - 1));
  }
  if (value - below != above - value) {
    return static_cast<uint16_t>(value - below < above - value ? low : high);
  }
  return static_cast<uint16_t>((low & 1) == 0 ? low : high);
}

uint16_t SuggestName(const Format& format, float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  return sign | NearestPositive(format, std::fabs(static_cast<double>(value)));
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool SameValue(float a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

TEST(DtypeTest, EveryHalfWidensExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    ASSERT_TRUE(SameValue(Fp16ToFp32(half), Decode(kHalf, half))) << bits;
    if (!std::isnan(Decode(kHalf, half))) {
      ASSERT_EQ(Fp32ToFp16(Fp16ToFp32(half)), half);
    }
  }
}

TEST(DtypeTest, EveryBf16WidensExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t b = static_cast<uint16_t>(bits);
    ASSERT_TRUE(SameValue(Bf16ToFp32(b), Decode(kBf16, b))) << bits;
    if (!std::isnan(Decode(kBf16, b))) {
      ASSERT_EQ(Fp32ToBf16(Bf16ToFp32(b)), b);
    }
  }
}

// Between each number and the next: the tie, and the floats on both sides of it.
TEST(DtypeTest, TiesGoToEvenAndTheirNeighboursToTheNearest) {
  for (const Format& format : {kHalf, kBf16}) {
    const int infinity = format.max_exponent << format.mantissa_bits;
    for (int bits = 0; bits + 1 < infinity; ++bits) {
      const double below = Decode(format, static_cast<uint16_t>(bits));
      const double above = Decode(format, static_cast<uint16_t>(bits + 1));
      const float tie = static_cast<float>((below + above) / 2);
      for (const float value :
           {std::nextafterf(tie, 0), tie, std::nextafterf(tie, INFINITY), -tie}) {
        const uint16_t got = format.bias == 15 ? Fp32ToFp16(value) : Fp32ToBf16(value);
        ASSERT_EQ(got, SuggestName(format, value)) << value;
      }
    }
  }
}

TEST(DtypeTest, RandomFloatsRoundToTheNearest) {
  constexpr uint32_t kSeed = 20231;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int i = 0; i < 300000; ++i) {
    const float value = FromBits(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(Fp32ToFp16(value), SuggestName(kHalf, value)) << value;
    ASSERT_EQ(Fp32ToBf16(value), SuggestName(kBf16, value)) << value;
  }
}

TEST(DtypeTest, TooLargeBecomesInfiniteAndNanStaysNan) {
  EXPECT_EQ(Fp32ToFp16(65519.0f), 0x7bff);
  EXPECT_EQ(Fp32ToFp16(65520.0f), 0x7c00);
  EXPECT_EQ(Fp32ToFp16(-1e30f), 0xfc00);
  EXPECT_EQ(Fp32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(Fp32ToFp16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(Fp32ToBf16(-std::numeric_limits<float>::infinity()), 0xff80);
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0x7fc00000u, 0x7f801000u}) {
    EXPECT_TRUE(std::isnan(Fp16ToFp32(Fp32ToFp16(FromBits(bits))))) << bits;
    EXPECT_TRUE(std::isnan(Bf16ToFp32(Fp32ToBf16(FromBits(bits))))) << bits;
  }
}

TEST(DtypeTest, ArraysConvertLikeElementsAtAnyAlignment) {
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, -1.5f, 3e-6f, 65504.0f, 1e-40f};
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    const size_t bytes = static_cast<size_t>(BytesPerElement(dtype));
    std::vector<std::byte> stored(values.size() * bytes + 1);
    ConvertFromFp32(dtype, values.data(), values.size(), stored.data() + 1);
    std::vector<float> back(values.size());
    ConvertToFp32(dtype, stored.data() + 1, values.size(), back.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = dtype == DataType::kFp32   ? values[i]
                             : dtype == DataType::kFp16 ? Fp16ToFp32(Fp32ToFp16(values[i]))
                                                        : Bf16ToFp32(Fp32ToBf16(values[i]));
      EXPECT_TRUE(SameValue(back[i], expected)) << DataTypeName(dtype) << " " << i;
    }
    ConvertToFp32(dtype, nullptr, 0, nullptr);
  }
}

TEST(DtypeTest, SizesAndNames) {
  EXPECT_EQ(BytesPerElement(DataType::kFp32), 4);
  EXPECT_EQ(BytesPerElement(DataType::kFp16), 2);
  EXPECT_EQ(BytesPerElement(DataType::kBf16), 2);
  EXPECT_EQ(BytesPerElement(DataType::kFp8E4m3), 1);
  EXPECT_EQ(BytesPerElement(DataType::kUnspecified), 0);
  EXPECT_EQ(BytesPerElement(static_cast<DataType>(77)), 0);
  EXPECT_EQ(DataTypeName(DataType::kFp8E4m3), "fp8-e4m3");
  EXPECT_EQ(DataTypeName(static_cast<DataType>(77)), "unspecified");
}

}  // namespace
}  // namespace annulus
