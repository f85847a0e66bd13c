#include "worker/comm/ticker.h"

#include <atomic>
#include <thread>

#include "base/steady_time.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// True if `count` reaches `wanted` within a minute.
bool Reaches(const std::atomic<int>& count, int wanted) {
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  while (count < wanted && SteadyNow() < deadline) std::this_thread::yield();
  return count >= wanted;
}

TEST(Ticker, TicksWhileArmed) {
  std::atomic<int> ticks{0};
  Ticker ticker(absl::Milliseconds(1), [&] { ++ticks; });
  ticker.Arm(absl::InfiniteFuture());
  EXPECT_TRUE(Reaches(ticks, 5));
}

TEST(Ticker, TicksAtADeadlineWithinThePeriod) {
  std::atomic<int> ticks{0};
  Ticker ticker(absl::Hours(1), [&] { ++ticks; });
  ticker.Arm(absl::InfiniteFuture());
  ticker.Arm(SteadyNow() + absl::Milliseconds(5));
  EXPECT_TRUE(Reaches(ticks, 1));
}

TEST(Ticker, TicksAtOnceForADeadlineThatHasPassed) {
  std::atomic<int> ticks{0};
  Ticker ticker(absl::Hours(1), [&] { ++ticks; });
  ticker.Arm(absl::InfinitePast());
  EXPECT_TRUE(Reaches(ticks, 1));
}

TEST(Ticker, ASecondArmTicksAgain) {
  std::atomic<int> ticks{0};
  Ticker ticker(absl::Milliseconds(1), [&] { ++ticks; });
  for (int i = 0; i < 3; ++i) {
    const int before = ticks;
    ticker.Arm(SteadyNow());
    EXPECT_TRUE(Reaches(ticks, before + 1));
    ticker.Disarm();
  }
}

TEST(Ticker, StopsWithoutATick) {
  std::atomic<int> ticks{0};
  {
    Ticker ticker(absl::Hours(1), [&] { ++ticks; });
  }
  EXPECT_EQ(ticks, 0);
}

}  // namespace
}  // namespace annulus
