// Reported times of jobs.
#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using v1::Job;

class JobStatsTest : public testing::Test {
 protected:
  v1::JobStats StatsOf(int64_t call) {
    return harness_.call(call).events.back().state_changed().stats();
  }
  // Runs a job on `size` workers. Returns its plan.
  v1::Plan Finish(int32_t size) {
    const int64_t call = harness_.Run(harness_.Request(size));
    const std::string job = harness_.JobOf(call);
    v1::Plan plan = harness_.Placed(call);
    harness_.Upload(job);
    harness_.Execute();
    if (size == 1) harness_.OutputsReady(job);
    harness_.Fetch(job);
    EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
    harness_.Execute();
    return plan;
  }
  CoordinatorHarness harness_;
};

TEST_F(JobStatsTest, OutputsOfASoloRunSayThatItsInputsCame) {
  harness_.Start(1);
  const int64_t call = harness_.Run(harness_.Request(1));
  const std::string job = harness_.JobOf(call);
  harness_.Advance(absl::Seconds(3));
  harness_.OutputsReady(job);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_DRAINING);
  harness_.Fetch(job);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  const v1::JobStats stats = StatsOf(call);
  EXPECT_EQ(DurationFromProto(stats.uploading()) + DurationFromProto(stats.running()),
            absl::Seconds(3));
  EXPECT_GT(DurationFromProto(stats.running()), absl::ZeroDuration());
  EXPECT_EQ(stats.balance(), 1);
  EXPECT_EQ(stats.lse_base(), v1::Outputs::LSE_BASE_E);
  EXPECT_TRUE(harness_.tables().runs.all().empty());
}

// The job ends, and Drop is sent, before the rest of the event is processed.
TEST_F(JobStatsTest, OneWordCanBeARunWithoutOutputs) {
  harness_.Start(1);
  const int64_t call = harness_.Run(harness_.Request(1, 0));
  harness_.FetchAtOnce(harness_.JobOf(call));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  harness_.Execute();
  EXPECT_TRUE(harness_.tables().runs.all().empty());
}

TEST_F(JobStatsTest, OneWordCanBeAWholeSoloRun) {
  harness_.Start(1);
  const int64_t call = harness_.Run(harness_.Request(0));
  const std::string job = harness_.JobOf(call);
  harness_.Advance(absl::Seconds(3));
  harness_.FetchAtOnce(job, absl::Seconds(1));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  EXPECT_TRUE(harness_.call(call).finished->ok());
  const v1::JobStats stats = StatsOf(call);
  EXPECT_EQ(stats.backend(), "cpu/test");
  EXPECT_EQ(DurationFromProto(stats.uploading()) + DurationFromProto(stats.running()),
            absl::Seconds(2))
      << "what came after the outputs were ready counts as neither";
  EXPECT_EQ(harness_.Info().workers(0).staging().used_bytes(), 0);
  EXPECT_EQ(harness_.Info().workers(0).device().used_bytes(), 0);
  EXPECT_TRUE(harness_.tables().runs.all().empty());
}

// The measured time also corrects the prediction of other jobs with this execution.
TEST_F(JobStatsTest, RunsCorrectPredictions) {
  harness_.Start(2);
  harness_.plan_seconds = 0.01;
  harness_.plan_job_seconds = 0.004;
  const auto expected = [&](int32_t size) {
    const v1::Plan plan = Finish(size);
    const double seconds = absl::ToDoubleSeconds(DurationFromProto(plan.predicted_time()));
    EXPECT_DOUBLE_EQ(plan.correction() * 0.01, seconds);
    return seconds;
  };
  harness_.took = absl::Milliseconds(11);
  EXPECT_DOUBLE_EQ(expected(2), 0.01);
  for (int i = 0; i < 2; ++i) expected(2);
  EXPECT_DOUBLE_EQ(expected(2), 0.015) << "the steps, and what a group takes beside them";
  harness_.took = absl::Milliseconds(8);
  for (int i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(expected(1), 0.01);
  EXPECT_DOUBLE_EQ(expected(1), 0.008);
}

TEST_F(JobStatsTest, OfAJobThatRanAgainTheLastRunCounts) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  const std::string job = harness_.JobOf(call);
  harness_.Upload(job);
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_DRAINING);
  // Its reports have arrived; its outputs are lost.
  harness_.Disconnect(harness_.worker("w1"));
  harness_.silent.insert("w1");
  harness_.Advance(harness_.tables().options.lease + absl::Seconds(1));
  harness_.AddWorker("w2");
  harness_.Execute();
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  ASSERT_EQ(harness_.Placed(call).attempt(), 2);
  harness_.Upload(job, 2);
  harness_.Execute();
  harness_.Fetch(job, 2);
  ASSERT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  const v1::JobStats stats = StatsOf(call);
  EXPECT_EQ(stats.attempts(), 2);
  EXPECT_EQ(stats.bytes_sent_per_rank_size(), 2);
}

}  // namespace
}  // namespace annulus
