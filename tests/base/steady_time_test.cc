#include "base/steady_time.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace annulus {
namespace {

TEST(SteadyTimeTest, ItStartsAtTheTimeOfDay) {
  const absl::Time before = absl::Now();
  const absl::Time now = SteadyNow();
  EXPECT_LT(absl::AbsDuration(now - before), absl::Minutes(1));
}

TEST(SteadyTimeTest, ItIsOneClockForAllThreadsAndNeverGoesBack) {
  std::vector<absl::Time> seen(4);
  absl::Time last = SteadyNow();
  for (absl::Time& time : seen) {
    std::thread([&] { time = SteadyNow(); }).join();
    EXPECT_GE(time, last);
    last = time;
  }
}

}  // namespace
}  // namespace annulus
