#include "client/transport/callback_thread.h"

#include <atomic>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(CallbackThreadTest, WhatIsDueRunsInOrderAndTheRestNever) {
  std::atomic<int> early{0}, last{0};
  {
    CallbackThread thread;
    thread.PostAfter(absl::InfiniteDuration(), [&] { ++early; });
    thread.PostAfter(absl::Hours(24 * 365 * 280), [&] { ++early; });
    thread.PostAfter(-absl::Seconds(1), [&] { last = 1; });
    thread.Post([&] { last = 2; });
  }
  EXPECT_EQ(early, 0);
  EXPECT_EQ(last, 2);
}

}  // namespace
}  // namespace annulus
