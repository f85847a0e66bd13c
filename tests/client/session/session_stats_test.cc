#include "client/session/session_stats.h"

#include "gtest/gtest.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

v1::ShardReport Report(int64_t running_ms, int64_t exposed_ms, int64_t bytes) {
  v1::ShardReport report;
  *report.mutable_running() = DurationToProto(absl::Milliseconds(running_ms));
  *report.mutable_exposed_communication() = DurationToProto(absl::Milliseconds(exposed_ms));
  report.set_bytes_sent(bytes);
  report.set_backend("cpu/test");
  return report;
}

TEST(SessionStatsTest, TakesTheSlowestRankOfTheLastAttempt) {
  const absl::Time begin = absl::FromUnixSeconds(1000);
  SessionStats stats(begin, v1::Outputs::LSE_BASE_2);
  EXPECT_FALSE(stats.Get().has_value());
  EXPECT_EQ(stats.Heard().ByteSizeLong(), 0u) << "not placed";
  v1::Plan plan;
  for (int rank = 0; rank < 2; ++rank) plan.add_shards()->set_rank(rank);
  stats.Placed("job", plan, begin + absl::Seconds(1));
  stats.Reported(0, Report(900, 900, 900));
  plan.set_attempt(2);
  plan.mutable_execution()->set_world_size(2);
  plan.set_balance(1.25);
  stats.Placed("job", plan, begin + absl::Seconds(3));
  stats.Uploaded(begin + absl::Seconds(4));
  stats.Uploaded(begin + absl::Seconds(5));
  stats.Reported(1, Report(20, 3, 7));
  EXPECT_FALSE(stats.Get().has_value()) << "a rank has not reported";
  const v1::JobStats heard = stats.Heard();
  EXPECT_EQ(heard.job_id(), "job");
  EXPECT_EQ(DurationFromProto(heard.running()), absl::Milliseconds(20));
  ASSERT_EQ(heard.bytes_sent_per_rank_size(), 2);
  EXPECT_EQ(heard.bytes_sent_per_rank(0), 0);
  EXPECT_EQ(heard.bytes_sent_per_rank(1), 7);
  stats.Reported(0, Report(30, 2, 5));
  const std::optional<v1::JobStats> got = stats.Get();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->job_id(), "job");
  EXPECT_EQ(got->attempts(), 2);
  EXPECT_EQ(got->execution().world_size(), 2);
  EXPECT_EQ(DurationFromProto(got->queued()), absl::Seconds(3));
  EXPECT_EQ(DurationFromProto(got->uploading()), absl::Seconds(2));
  EXPECT_EQ(DurationFromProto(got->running()), absl::Milliseconds(30));
  EXPECT_EQ(DurationFromProto(got->exposed_communication()), absl::Milliseconds(3));
  ASSERT_EQ(got->bytes_sent_per_rank_size(), 2);
  EXPECT_EQ(got->bytes_sent_per_rank(0), 5);
  EXPECT_EQ(got->bytes_sent_per_rank(1), 7);
  EXPECT_EQ(got->backend(), "cpu/test");
  EXPECT_EQ(got->balance(), 1.25);
  EXPECT_EQ(got->lse_base(), v1::Outputs::LSE_BASE_2);
}

}  // namespace
}  // namespace annulus
