#include "worker/data_plane/rate_floor.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr int64_t kFloor = 1000;
const RateLimits kLimits = {kFloor, absl::Seconds(10)};

// A client that moves `bytes` after each `pause`, until it counts as stalled or `limit` has passed.
absl::Duration TimeToStall(RateFloor* rate, absl::Time start, absl::Duration pause, int64_t bytes) {
  const absl::Duration limit = absl::Hours(1);
  for (absl::Time now = start; now - start < limit; now += pause) {
    rate->Wait(now);
    if (rate->Stalled(now + pause)) return now + pause - start;
    rate->Moved(bytes, now + pause);
  }
  return limit;
}

TEST(RateFloorTest, StandingStillIsAStallAfterOneWindow) {
  RateFloor rate(kLimits);
  rate.Wait(absl::UnixEpoch());
  EXPECT_FALSE(rate.Stalled(absl::UnixEpoch() + absl::Seconds(9.9)));
  EXPECT_TRUE(rate.Stalled(absl::UnixEpoch() + absl::Seconds(10)));
}

TEST(RateFloorTest, ABurstAtTheBeginningSavesOneWindowAndNoMore) {
  RateFloor rate(kLimits);
  rate.Wait(absl::UnixEpoch());
  rate.Moved(int64_t{1} << 40, absl::UnixEpoch() + absl::Seconds(1));
  const absl::Time still = absl::UnixEpoch() + absl::Seconds(2);
  rate.Wait(still);
  EXPECT_FALSE(rate.Stalled(still + absl::Seconds(9.9)));
  EXPECT_TRUE(rate.Stalled(still + absl::Seconds(10)));
}

TEST(RateFloorTest, AtTheFloorAClientMayGoOnForEver) {
  RateFloor rate(kLimits);
  EXPECT_EQ(TimeToStall(&rate, absl::UnixEpoch(), absl::Seconds(1), kFloor), absl::Hours(1));
}

TEST(RateFloorTest, BelowTheFloorItStallsInTime) {
  RateFloor half(kLimits);
  EXPECT_LE(TimeToStall(&half, absl::UnixEpoch(), absl::Seconds(1), kFloor / 2), absl::Seconds(20));
  RateFloor one_byte(kLimits);
  EXPECT_LE(TimeToStall(&one_byte, absl::UnixEpoch(), absl::Seconds(1), 1), absl::Seconds(11));
}

TEST(RateFloorTest, TimeInWhichNobodyWaitsDoesNotCount) {
  RateFloor rate(kLimits);
  rate.Wait(absl::UnixEpoch());
  rate.Moved(1, absl::UnixEpoch() + absl::Seconds(1));
  EXPECT_FALSE(rate.Stalled(absl::UnixEpoch() + absl::Hours(1)));
}

}  // namespace
}  // namespace annulus
