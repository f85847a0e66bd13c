#include "worker/lane/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/time/clock.h"

namespace annulus {
namespace {

StuckDetector::Budgets Budgets() { return {absl::Seconds(60), absl::Seconds(10)}; }

class StuckDetectorTest : public testing::Test {
 protected:
  bool Stuck(const LaneSight& sight) { return detector_.Look(sight, now_).has_value(); }

  StuckDetector detector_{Budgets()};
  absl::Time now_ = absl::UnixEpoch();
  LaneSight sight_{"group", true, "step 3", 0, std::nullopt, "", absl::ZeroDuration()};
};

TEST_F(StuckDetectorTest, ProgressKeepsALaneAlive) {
  for (int i = 0; i < 100; ++i, now_ += absl::Seconds(59), ++sight_.progress)
    EXPECT_FALSE(Stuck(sight_));
}

TEST_F(StuckDetectorTest, WithoutProgressItIsStuck) {
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(59);
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(1);
  const auto record = detector_.Look(sight_, now_);
  ASSERT_TRUE(record.has_value());
  EXPECT_NE(record->find("step 3"), std::string::npos);
}

TEST_F(StuckDetectorTest, ALongStepHasMoreTime) {
  sight_.patience = absl::Seconds(100);
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(159);
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Stuck(sight_));
}

TEST_F(StuckDetectorTest, AnIdleLaneIsNeverStuck) {
  sight_.busy = false;
  for (int i = 0; i < 10; ++i, now_ += absl::Hours(1)) EXPECT_FALSE(Stuck(sight_));
  sight_.busy = true;  // Its time begins now, and the beginning counts as progress.
  ++sight_.progress;
  EXPECT_FALSE(Stuck(sight_));
}

TEST_F(StuckDetectorTest, TimeInWhichTheProcessStoodStillDoesNotCount) {
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(40);
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Hours(1);
  detector_.StoodStill(absl::Hours(1), now_);
  now_ += absl::Seconds(19);
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Stuck(sight_));
}

TEST_F(StuckDetectorTest, NorDoesItForAnAbort) {
  sight_.busy = false;
  sight_.aborting = now_;
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Hours(1);
  detector_.StoodStill(absl::Hours(1), now_);
  now_ += absl::Seconds(9);
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Stuck(sight_));
  // The next abort begins a new period, even without an observation in between.
  sight_.aborting = now_;
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(10);
  EXPECT_TRUE(Stuck(sight_));
}

TEST_F(StuckDetectorTest, AnAbortHasItsOwnBudget) {
  sight_.busy = false;
  sight_.aborting = now_;
  now_ += absl::Seconds(9);
  EXPECT_FALSE(Stuck(sight_));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Stuck(sight_));
}

TEST(WatchdogTest, TellsOnceOfTheLaneThatIsStuck) {
  std::atomic<int64_t> seconds{0};
  std::atomic<int> told{0};
  Watchdog::Options options;
  options.budgets = Budgets();
  options.now = [&] { return absl::UnixEpoch() + absl::Seconds(seconds.fetch_add(1)); };
  options.interval = absl::Milliseconds(1);
  options.lanes.push_back([] { return LaneSight{"solo", false, "", 0, std::nullopt, ""}; });
  options.lanes.push_back(
      [] { return LaneSight{"group", true, "a step", 7, std::nullopt, "job-1"}; });
  std::string job, record;
  options.stuck = [&](const std::string& of, const std::string& text) {
    job = of;
    record = text;
    ++told;
  };
  Watchdog watchdog(options);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (told == 0 && absl::Now() < deadline) std::this_thread::yield();
  // The watchdog should have ended. The observations of another one show when it would have called
  // again.
  std::atomic<int> looks{0};
  Watchdog::Options others;
  others.now = absl::Now;
  others.interval = options.interval;
  others.lanes.push_back([&] {
    ++looks;
    return LaneSight{"solo", false, "", 0, std::nullopt, ""};
  });
  Watchdog other(others);
  while (looks < 200 && told < 2 && absl::Now() < deadline) std::this_thread::yield();
  ASSERT_EQ(told, 1);
  EXPECT_GE(looks, 200);
  EXPECT_EQ(job, "job-1");
  EXPECT_NE(record.find("group lane"), std::string::npos) << record;
}

// The clock shows that a wait of a millisecond took an hour: the process was stopped.
TEST(WatchdogTest, ForgivesTheTimeInWhichTheProcessStoodStill) {
  std::atomic<int> looks{0}, told{0};
  Watchdog::Options options;
  options.budgets = Budgets();
  // After the first, readings before and after a wait alternate.
  options.now = [readings = 0]() mutable {
    return absl::UnixEpoch() + absl::Hours(readings++ / 2);
  };
  options.interval = absl::Milliseconds(1);
  options.lanes.push_back([&] {
    ++looks;
    return LaneSight{"group", true, "a step", 7, absl::UnixEpoch(), "job-1"};
  });
  options.stuck = [&](const std::string&, const std::string&) { ++told; };
  Watchdog watchdog(options);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (looks < 20 && told == 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(told, 0);
  EXPECT_GE(looks, 20);
}

TEST(WatchdogTest, EndsAtOnce) {
  Watchdog::Options options;
  options.now = absl::Now;
  options.interval = absl::Seconds(30);
  const absl::Time began = absl::Now();
  std::make_unique<Watchdog>(options).reset();
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
}

}  // namespace
}  // namespace annulus
