#include "attention/mask/interval_pieces.h"

#include <gtest/gtest.h>

#include <vector>

namespace annulus {
namespace {

// Sequences of many lengths share a mask. Each costs only as much as its own rows need.
TEST(RangeBandsTest, AShortSequenceHasFewStripsOfALongList) {
  Mask mask;
  for (int64_t i = 0; i < 1000; ++i) {
    mask.ranges.push_back({10 * i, 10 * i + 5, 0, 10, MaskRange::Kind::kFull});
  }
  const RangeBands bands(mask.ranges);
  EXPECT_EQ(bands.bands(0), 0);
  EXPECT_EQ(bands.bands(5), 1);
  EXPECT_EQ(bands.bands(6), 2);
  EXPECT_EQ(bands.bands(1 << 20), 2000);
  int64_t row = 0;
  for (int64_t i = 0; i < bands.bands(37); ++i) {
    const Interval rows = bands.RowsOf(i, 37);
    EXPECT_EQ(rows.begin, row);
    EXPECT_GT(rows.length(), 0);
    row = rows.end;
  }
  EXPECT_EQ(row, 37);
  EXPECT_EQ(IntervalPieces(mask, bands, 37, 10).pieces(), 8);
  EXPECT_EQ(IntervalPieces(mask, bands, 0, 10).pieces(), 0);
  EXPECT_EQ(CountCuts(mask, bands, 37, 10, 1 << 20), 8);
}

}  // namespace
}  // namespace annulus
