#include "attention/spec/interval.h"

#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(IntervalTest, WhatDoesNotMeetHasNoLength) {
  EXPECT_EQ(Intersect({2, 7}, {5, 9}), (Interval{5, 7}));
  EXPECT_EQ(Intersect({2, 4}, {5, 9}).length(), 0);
  EXPECT_EQ((Interval{7, 3}).length(), 0);
}

TEST(IntervalTest, ASetIsSortedJoinedAndHoldsNothingEmpty) {
  const std::vector<Interval> mixed = {{8, 9}, {3, 5}, {4, 4}, {1, 2}, {5, 6}, {4, 5}, {20, 10}};
  EXPECT_EQ(Normalized(mixed), (std::vector<Interval>{{1, 2}, {3, 6}, {8, 9}}));
  EXPECT_TRUE(Normalized(Intervals{{3, 3}}).empty());
}

}  // namespace
}  // namespace annulus
