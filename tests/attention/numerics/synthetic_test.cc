#include "attention/numerics/synthetic.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "attention/spec/dtype.h"

namespace annulus {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers published with the generator (Random123, kat_vectors, "philox4x32 10").
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SyntheticTest, TheElementIsTheTopByteOfTheDocumentedBlock) {
  const uint64_t seed = 0x123456789abcdef0u;
  const int64_t row = (int64_t{5} << 32) + 77;
  const Words block = Philox4x32({2 + 256 * 5, 77, 3, 9}, {0x9abcdef0, 0x12345678});
  const float expected = (static_cast<int>(block[0] >> 24) - 128) / 128.0f;
  EXPECT_EQ(SyntheticValue(seed, TensorId::kK, row, 3, 9), expected);
}

// Numbers for comparison with other implementations; also in docs/reference/numerics.md.
TEST(SyntheticTest, FirstElementsOfSeed1) {
  const auto first = [](TensorId tensor) {
    std::vector<float> values;
    for (int32_t dim = 0; dim < 4; ++dim) values.push_back(SyntheticValue(1, tensor, 0, 0, dim));
    for (float& value : values) value *= 128;
    return values;
  };
  EXPECT_EQ(first(TensorId::kQ), (std::vector<float>{44, -112, -84, -91}));
  EXPECT_EQ(first(TensorId::kK), (std::vector<float>{-65, -67, -74, -34}));
  EXPECT_EQ(first(TensorId::kV), (std::vector<float>{65, 98, 125, -58}));
}

TensorInfo Info(TensorId id, DataType dtype) {
  return {id, RowSpace::kKey, Direction::kInput, 3, 5, dtype};
}

TEST(SyntheticTest, AnyRowsOfAnyDtypeAreTheSameNumbers) {
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    const TensorInfo info = Info(TensorId::kV, dtype);
    const Interval rows{4, 7};
    std::vector<std::byte> bytes(static_cast<size_t>(rows.length() * info.row_bytes()) + 1);
    FillSyntheticRows(42, info, rows, bytes.data() + 1);
    std::vector<float> values(3 * 3 * 5);
    ConvertToFp32(dtype, bytes.data() + 1, values.size(), values.data());
    size_t next = 0;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int32_t head = 0; head < 3; ++head) {
        for (int32_t dim = 0; dim < 5; ++dim) {
          ASSERT_EQ(values[next++], SyntheticValue(42, TensorId::kV, row, head, dim));
        }
      }
    }
  }
}

TEST(SyntheticTest, AllValuesOfTheGridAppearAboutEquallyOften) {
  std::vector<int> seen(256);
  for (int64_t row = 0; row < 1000; ++row) {
    for (int32_t dim = 0; dim < 64; ++dim) {
      const float value = SyntheticValue(3, TensorId::kQ, row, 1, dim);
      ASSERT_GE(value, -1.0f);
      ASSERT_LT(value, 1.0f);
      ++seen[static_cast<size_t>(value * 128 + 128)];
    }
  }
  for (const int count : seen) EXPECT_NEAR(count, 250, 100);
}

TEST(SyntheticTest, EveryCoordinateAndTheSeedMatter) {
  std::set<std::vector<float>> vectors;
  const auto add = [&](uint64_t seed, TensorId tensor, int64_t row, int32_t head) {
    std::vector<float> values;
    for (int32_t dim = 0; dim < 32; ++dim) {
      values.push_back(SyntheticValue(seed, tensor, row, head, dim));
    }
    vectors.insert(values);
  };
  add(1, TensorId::kQ, 0, 0);
  add(2, TensorId::kQ, 0, 0);
  add(uint64_t{1} << 32, TensorId::kQ, 0, 0);
  add(1, TensorId::kK, 0, 0);
  add(1, TensorId::kQ, 1, 0);
  add(1, TensorId::kQ, int64_t{1} << 32, 0);
  add(1, TensorId::kQ, 0, 1);
  EXPECT_EQ(vectors.size(), 7u);
}

}  // namespace
}  // namespace annulus
