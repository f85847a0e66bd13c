#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "attention/numerics/partial.h"
#include "attention/spec/dtype.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The rule of attention/numerics/partial.h, by divisions.
std::vector<float> Divided(const std::vector<float>& sums, const RowDivision& by) {
  std::vector<float> row;
  for (const float sum : sums)
    row.push_back(by.instead ? *by.instead : by.scale * sum / by.divisor + 0.0f);
  return row;
}

void ExpectSameBits(const TileIsa& isa, const std::vector<float>& sums, const RowDivision& by,
                    DataType dtype) {
  const std::vector<float> row = Divided(sums, by);
  const size_t element = BytesPerElement(dtype);
  std::vector<std::byte> expected(row.size() * element), got(row.size() * element);
  ConvertFromFp32(dtype, row.data(), row.size(), expected.data());
  isa.finish_row(sums.data(), by, static_cast<int>(sums.size()), dtype, got.data());
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) {
      float value = 0;
      ConvertToFp32(dtype, got.data() + i * element, 1, &value);
      EXPECT_TRUE(std::isnan(value)) << isa.name << " of " << sums[i];
      continue;
    }
    ASSERT_EQ(std::memcmp(got.data() + i * element, expected.data() + i * element, element), 0)
        << isa.name << ": " << by.scale << " * " << sums[i] << " / " << by.divisor;
  }
}

void ExpectSameBits(const std::vector<float>& sums, const RowDivision& by) {
  for (const TileIsa* isa : AvailableIsas())
    for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16})
      ExpectSameBits(*isa, sums, by, dtype);
}

TEST(FinishRowTest, QuotientsAreRoundedAsDivisionsAre) {
  std::mt19937_64 random(20261123);
  std::uniform_real_distribution<float> mantissa(1, 2);
  std::uniform_int_distribution<int> exponent(-40, 40);
  const auto number = [&] { return std::ldexp(mantissa(random), exponent(random)); };
  for (int n = 0; n < 3000; ++n) {
    std::vector<float> sums(n % 3 == 0 ? 1 + n % 256 : 128);
    for (float& sum : sums) sum = random() % 2 == 0 ? number() : -number();
    sums[0] = 0;
    sums.back() = -0.0f;
    RowDivision by;
    by.scale = n % 2 == 0 ? 1.0f : mantissa(random) / 2;
    by.divisor = number();
    // The most difficult divisors: all bits of the mantissa, or only the last.
    if (n % 5 == 1) by.divisor = std::nextafter(2.0f, 0.0f);
    if (n % 5 == 2) by.divisor = std::nextafter(1.0f, 2.0f);
    ExpectSameBits(sums, by);
  }
}

TEST(FinishRowTest, NumbersThatAreNotNormalAreDividedAllTheSame) {
  const float special[] = {0,      -0.0f,  kInf,  -kInf,  kNan,     1e-45f,  -1e-40f,
                           1e-38f, 2e-38f, 3e38f, -3e38f, 0x1p-61f, 0x1p61f, 1.5f};
  for (const float divisor : {1.0f, 3.0f, 1e-42f, 1e-30f, 1e30f, 3e38f, 0.0f, kInf, kNan}) {
    for (const float sum : special) {
      std::vector<float> sums(40, 0.7f);
      sums[33] = sum;
      RowDivision by;
      by.divisor = divisor;
      ExpectSameBits(sums, by);
      by.scale = 1e-30f;
      ExpectSameBits(sums, by);
    }
  }
}

TEST(FinishRowTest, WhereNothingIsDividedTheRowIsWhatStandsInstead) {
  RowDivision by;
  by.instead = 0.0f;
  ExpectSameBits(std::vector<float>(100, kInf), by);
  by.instead = kNan;
  ExpectSameBits(std::vector<float>(100, 1.0f), by);
}

}  // namespace
}  // namespace annulus
