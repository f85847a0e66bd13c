#include "client/cli/files/tensor_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>

#include "base/error.h"
#include "tests/seed.h"

namespace annulus {
namespace {

constexpr TensorLayout kAll[] = {TensorLayout::kThd, TensorLayout::kHnd, TensorLayout::kBshd,
                                 TensorLayout::kBhsd, TensorLayout::kSbhd};

std::string Field(const absl::Status& status) {
  const ErrorDetail detail = DetailOf(status);
  return detail.reason + (detail.fields.empty() ? "" : " " + detail.fields[0].field);
}

// The offset of an element, by the letters of the layout's name, in elements.
int64_t PlaceOf(const CallerTensor& tensor, const std::vector<int64_t>& strides, int64_t b,
                int64_t s, int64_t h, int64_t d) {
  const std::map<char, int64_t> index = {{'b', b}, {'s', s}, {'t', s},
                                         {'h', h}, {'n', s}, {'d', d}};
  const std::string name(TensorLayoutName(tensor.layout));
  int64_t place = 0;
  for (size_t i = 0; i < name.size(); ++i) place += index.at(name[i]) * strides[i];
  return place;
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

absl::Span<const std::byte> Bytes(const std::vector<uint16_t>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * 2};
}
absl::Span<std::byte> MutableBytes(std::vector<uint16_t>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * 2};
}

CallerTensor Of(TensorLayout layout, std::vector<int64_t> shape,
                std::vector<int64_t> strides = {}) {
  return {layout, 2, std::move(shape), std::move(strides)};
}

TEST(TensorLayoutTest, GoesByItsName) {
  for (const TensorLayout layout : kAll) {
    const std::string name(TensorLayoutName(layout));
    EXPECT_EQ(*TensorLayoutNamed(name), layout);
    std::string upper = name;
    std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
    EXPECT_EQ(*TensorLayoutNamed(upper), layout);
    EXPECT_EQ(HasBatch(layout), name.size() == 4);
  }
  for (const char* other : {"", "bsdh", "bshdx", "hd", "nhd"}) {
    const absl::Status status = TensorLayoutNamed(other).status();
    EXPECT_EQ(DetailOf(status).reason, "UNKNOWN_LAYOUT") << other;
    EXPECT_NE(status.message().find("thd, hnd, bshd, bhsd, sbhd"), std::string::npos) << status;
  }
}

TEST(TensorLayoutTest, ShapesGoBackAndForth) {
  EXPECT_EQ(ShapeIn(TensorLayout::kBhsd, {2, 3, 4, 5}), (std::vector<int64_t>{2, 4, 3, 5}));
  EXPECT_EQ(ShapeIn(TensorLayout::kSbhd, {2, 3, 4, 5}), (std::vector<int64_t>{3, 2, 4, 5}));
  EXPECT_EQ(ShapeIn(TensorLayout::kHnd, {1, 3, 4, 5}), (std::vector<int64_t>{4, 3, 5}));
  EXPECT_EQ(DimensionNames(TensorLayout::kBhsd), "[batch, heads, tokens, dim]");
  EXPECT_EQ(DimensionNames(TensorLayout::kHnd), "[heads, tokens, dim]");
  for (const TensorLayout layout : kAll) {
    const RowExtents extents{HasBatch(layout) ? 2 : 1, 3, 4, 5};
    const RowExtents back = ExtentsOf(layout, ShapeIn(layout, extents));
    EXPECT_EQ(back.batch, extents.batch);
    EXPECT_EQ(back.tokens, 3);
    EXPECT_EQ(back.heads, 4);
    EXPECT_EQ(back.dim, 5);
  }
}

// Random shapes and strides, checked element by element. Gaps between elements stay unchanged.
TEST(TensorLayoutTest, EveryElementHasItsPlace) {
  const uint64_t seed = TestSeed();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    const TensorLayout layout = kAll[draw(0, 4)];
    const RowExtents extents{HasBatch(layout) ? draw(0, 3) : 1, draw(0, 6), draw(1, 4), draw(1, 9)};
    CallerTensor tensor = Of(layout, ShapeIn(layout, extents));
    std::vector<int64_t> strides = RowMajor(tensor.shape);
    if (round % 2 == 0) {
      // Any order of dimensions, with gaps.
      std::vector<size_t> order(strides.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      int64_t next = draw(1, 2);
      for (const size_t i : order) {
        strides[i] = next;
        next = next * std::max<int64_t>(tensor.shape[i], 1) + draw(0, 3);
      }
      tensor.strides = strides;
    }
    int64_t end = 1;
    for (size_t i = 0; i < strides.size(); ++i)
      end += strides[i] * std::max<int64_t>(tensor.shape[i] - 1, 0);
    std::vector<uint16_t> data(end), laid(end, 0xAAAA);
    for (uint16_t& value : data) value = static_cast<uint16_t>(random());
    std::vector<uint16_t> rows(*PackedBytes(tensor) / 2, 0x5555), wanted, laid_wanted = laid;
    ASSERT_TRUE(PackRows(tensor, Bytes(data), MutableBytes(rows)).ok());
    ASSERT_TRUE(UnpackRows(tensor, Bytes(rows), MutableBytes(laid)).ok());
    for (int64_t b = 0; b < extents.batch; ++b) {
      for (int64_t s = 0; s < extents.tokens; ++s) {
        for (int64_t h = 0; h < extents.heads; ++h) {
          for (int64_t d = 0; d < extents.dim; ++d) {
            const int64_t place = PlaceOf(tensor, strides, b, s, h, d);
            wanted.push_back(data[place]);
            laid_wanted[place] = data[place];
          }
        }
      }
    }
    ASSERT_EQ(rows, wanted) << TensorLayoutName(layout) << " round " << round;
    ASSERT_EQ(laid, laid_wanted) << TensorLayoutName(layout) << " round " << round;
  }
}

TEST(TensorLayoutTest, OneRowForManyCanBeReadFromOnly) {
  const CallerTensor expanded = Of(TensorLayout::kBhsd, {1, 3, 2, 2}, {4, 0, 2, 1});
  const std::vector<uint16_t> data = {1, 2, 3, 4};
  std::vector<uint16_t> rows(12), laid(4);
  ASSERT_TRUE(PackRows(expanded, Bytes(data), MutableBytes(rows)).ok());
  EXPECT_EQ(rows, (std::vector<uint16_t>{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}));
  EXPECT_EQ(Field(UnpackRows(expanded, Bytes(rows), MutableBytes(laid))),
            "SHAPE_MISMATCH tensor.strides");
  // Dimensions that overlap.
  const CallerTensor twisted = Of(TensorLayout::kThd, {2, 2, 2}, {2, 2, 1});
  std::vector<uint16_t> eight(8);
  EXPECT_EQ(Field(UnpackRows(twisted, Bytes(eight), MutableBytes(eight))),
            "SHAPE_MISMATCH tensor.strides");
  // A stride of a dimension of size 1 has no effect.
  EXPECT_TRUE(UnpackRows(Of(TensorLayout::kBhsd, {1, 2, 2, 1}, {0, 2, 1, 0}), Bytes(data),
                         MutableBytes(laid))
                  .ok());
}

TEST(TensorLayoutTest, WhatIsNoTensorIsRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto refused = [](const CallerTensor& tensor) {
    return Field(PackedBytes(tensor).status());
  };
  EXPECT_EQ(refused(Of(TensorLayout::kBhsd, {2, 3, 4})), "SHAPE_MISMATCH tensor.shape");
  EXPECT_EQ(refused(Of(TensorLayout::kThd, {2, 3, 4, 5})), "SHAPE_MISMATCH tensor.shape");
  EXPECT_EQ(refused(Of(TensorLayout::kThd, {2, -3, 4})), "SHAPE_MISMATCH tensor.shape");
  EXPECT_EQ(refused({TensorLayout::kThd, 0, {2, 3, 4}, {}}), "SHAPE_MISMATCH tensor.element_bytes");
  EXPECT_EQ(refused(Of(TensorLayout::kThd, {kMost / 4, 3, 4})), "DIM_OVERFLOW tensor.shape");
  EXPECT_EQ(refused(Of(TensorLayout::kThd, {kMost / 4, 0, 4})), "DIM_OVERFLOW tensor.shape");
  EXPECT_EQ(refused(Of(TensorLayout::kThd, {2, 3, 4}, {12, 4})), "SHAPE_MISMATCH tensor.strides");
  EXPECT_EQ(refused(Of(TensorLayout::kThd, {2, 3, 4}, {12, 4, -1})),
            "SHAPE_MISMATCH tensor.strides");
  EXPECT_EQ(refused(Of(TensorLayout::kThd, {2, 3, 4}, {kMost / 2, 4, 1})),
            "DIM_OVERFLOW tensor.strides");
  EXPECT_EQ(refused(Of(TensorLayout::kThd, {9, 3, 4}, {kMost / 16, 4, 1})),
            "DIM_OVERFLOW tensor.strides");
  std::vector<uint16_t> data(24), rows(24), fewer(23);
  const CallerTensor tensor = Of(TensorLayout::kThd, {2, 3, 4});
  EXPECT_EQ(Field(PackRows(tensor, Bytes(fewer), MutableBytes(rows))),
            "TENSOR_BYTES_MISMATCH tensor.bytes");
  EXPECT_EQ(Field(PackRows(tensor, Bytes(data), MutableBytes(fewer))),
            "TENSOR_BYTES_MISMATCH rows");
  EXPECT_EQ(Field(UnpackRows(tensor, Bytes(rows), MutableBytes(fewer))),
            "TENSOR_BYTES_MISMATCH tensor.bytes");
  // Further data may follow.
  data.resize(30);
  EXPECT_TRUE(PackRows(tensor, Bytes(data), MutableBytes(rows)).ok());
  // Nothing is read from an empty tensor.
  EXPECT_TRUE(PackRows(Of(TensorLayout::kThd, {0, 3, 4}), {}, {}).ok());
}

}  // namespace
}  // namespace annulus
