#include "tests/worker/kernel/cuda/emulator/hopper_products.h"

#include <gtest/gtest.h>

#include <cmath>

namespace annulus::cuda {
namespace {

TEST(HopperProductsTest, SumsAreCutOff) {
  float left[16] = {1, 1}, right[16] = {1, 0};
  right[1] = -std::ldexp(1.0f, -30);
  float sum = 1;
  AddProducts(left, right, 1, &sum);
  EXPECT_EQ(sum, 2.0f) << "what is below the last bit of the largest is lost";
  left[0] = INFINITY;
  AddProducts(left, right, 1, &sum);
  EXPECT_EQ(sum, INFINITY);
  left[0] = 0;
  right[0] = NAN;
  AddProducts(left, right, 1, &sum);
  EXPECT_TRUE(std::isnan(sum));
}

TEST(HopperProductsTest, OnlyDescriptorsThatAreKnownAreRead) {
  const uint64_t good = uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{2} << 16 | 3;
  const MatrixLayout layout = DecodeDescriptor(good);
  EXPECT_EQ(layout.fault, "");
  EXPECT_EQ(layout.start, 48u);
  EXPECT_EQ(layout.leading, 32u);
  EXPECT_EQ(layout.stride, 1024u);
  for (const int bit : {14, 30, 46, 49, 61, 63})
    EXPECT_NE(DecodeDescriptor(good ^ uint64_t{1} << bit).fault, "") << bit;
}

}  // namespace
}  // namespace annulus::cuda
