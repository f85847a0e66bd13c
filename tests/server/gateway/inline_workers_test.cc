#include "server/gateway/inline_workers.h"

#include <atomic>

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(InlineWorkersTest, EverythingPostedRunsBeforeItGoes) {
  std::atomic<int> ran{0};
  {
    InlineWorkers queue({3, 0});
    for (int i = 0; i < 1000; ++i) queue.Post([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 1000);
}

TEST(InlineWorkersTest, TheBudgetIsNeverPassedAndComesBack) {
  InlineWorkers queue({1, 100});
  auto first = queue.Reserve(60);
  ASSERT_TRUE(first.ok());
  const absl::Status refused = queue.Reserve(41).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refused).reason, "QUEUE_FULL");
  EXPECT_TRUE(DetailOf(refused).retry_after.has_value());
  EXPECT_TRUE(queue.Reserve(40).ok());
  first->reset();
  EXPECT_TRUE(queue.Reserve(100).ok());
}

TEST(InlineWorkersTest, WhatNeverFitsIsNotToldToComeBack) {
  InlineWorkers queue({1, 100});
  const absl::Status refused = queue.Reserve(101).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(refused).reason, "LIMIT_EXCEEDED");
  EXPECT_FALSE(DetailOf(refused).retry_after.has_value());
  EXPECT_TRUE(queue.Reserve(100).ok());
}

TEST(InlineWorkersTest, AReservationMayOutliveTheQueue) {
  std::shared_ptr<void> reservation;
  {
    InlineWorkers queue({1, 10});
    reservation = *queue.Reserve(10);
  }
  reservation.reset();
}

}  // namespace
}  // namespace annulus
