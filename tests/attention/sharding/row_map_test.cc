#include "attention/sharding/row_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace annulus {
namespace {

// The rows of the ranges, one by one.
std::vector<int64_t> List(const std::vector<RowRange>& ranges) {
  std::vector<int64_t> rows;
  for (const RowRange& range : ranges) {
    for (int64_t i = 0; i < range.count; ++i) {
      for (int64_t j = 0; j < range.block; ++j) rows.push_back(range.begin + i * range.stride + j);
    }
  }
  return rows;
}

void ExpectRunsAreMaximalAndComplete(const RowMap& map, const std::vector<int64_t>& rows,
                                     Interval local) {
  int64_t next = local.begin, previous_global_end = -1;
  map.ForEachRun(local, [&](int64_t at, int64_t global, int64_t count) {
    ASSERT_EQ(at, next);
    ASSERT_GT(count, 0);
    ASSERT_NE(global, previous_global_end) << "the run before should have included it";
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(rows[static_cast<size_t>(at + i)], global + i);
    }
    next = at + count;
    previous_global_end = global + count;
  });
  ASSERT_EQ(next, std::max(local.begin, local.end));
}

void ExpectMatches(const RowMap& map, const std::vector<int64_t>& rows, int64_t beyond) {
  ASSERT_EQ(map.rows(), static_cast<int64_t>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(map.Global(static_cast<int64_t>(i)), rows[i]);
    ASSERT_EQ(map.LowerBound(map.Global(static_cast<int64_t>(i))), static_cast<int64_t>(i));
  }
  for (int64_t global = -1; global <= beyond; ++global) {
    const auto found = std::lower_bound(rows.begin(), rows.end(), global);
    ASSERT_EQ(map.LowerBound(global), found - rows.begin()) << global;
  }
  const int64_t n = map.rows();
  for (const Interval& local : {Interval{0, n}, Interval{0, n / 2}, Interval{n / 3, n},
                                Interval{n / 3, n / 2}, Interval{n, n}}) {
    ExpectRunsAreMaximalAndComplete(map, rows, local);
  }
}

TEST(RowMapTest, StripesOfEveryLengthAndGroupSize) {
  for (int64_t length = 0; length <= 64; ++length) {
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      for (const int64_t stripe : {1, 2, 5}) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const int64_t full = std::max<int64_t>(0, length - rank * stripe) / (ranks * stripe);
          std::vector<RowRange> ranges = {{rank * stripe, stripe, ranks * stripe, full}};
          const int64_t rest = length - (rank * stripe + full * ranks * stripe);
          if (rest > 0) {
            const int64_t rows = std::min(rest, stripe);
            ranges.push_back({rank * stripe + full * ranks * stripe, rows, rows, 1});
          }
          ExpectMatches(RowMap(ranges), List(ranges), length + 2);
        }
      }
    }
  }
}

TEST(RowMapTest, RandomRangesWithTouchingAndGapingBlocks) {
  constexpr uint32_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<RowRange> ranges;
    int64_t at = random() % 3;
    for (uint32_t i = random() % 5; i > 0; --i) {
      RowRange range;
      range.begin = at;
      range.block = 1 + random() % 4;
      range.stride = range.block + random() % 3;
      range.count = random() % 4;
      ranges.push_back(range);
      if (range.count > 0) at += (range.count - 1) * range.stride + range.block + random() % 3;
    }
    ExpectMatches(RowMap(ranges), List(ranges), at + 3);
  }
}

TEST(RowMapTest, ZigzagShardIsTwoRunsAndAnIntervalStaysOne) {
  const RowMap map({{4, 2, 2, 1}, {10, 2, 2, 1}});
  EXPECT_EQ(map.Global(2), 10);
  EXPECT_EQ(map.Local({5, 11}), (Interval{1, 3}));
  EXPECT_EQ(map.Local({6, 10}).length(), 0);
  EXPECT_EQ(map.Hull({1, 3}), (Interval{5, 11}));
  EXPECT_EQ(map.Hull({3, 4}), (Interval{11, 12}));
  EXPECT_EQ(RowMap().rows(), 0);
  EXPECT_EQ(RowMap().LowerBound(0), 0);
}

TEST(RowMapTest, LargeRowsDoNotOverflow) {
  const int64_t rows = int64_t{1} << 40;
  const RowMap map({{3, 1, 64, rows}});
  EXPECT_EQ(map.Global(rows - 1), 3 + (rows - 1) * 64);
  EXPECT_EQ(map.LowerBound(map.Global(rows - 1) + 1), rows);
}

}  // namespace
}  // namespace annulus
